import { describe, expect, it } from "vitest";

import type { Palette } from "@/components/plots/palette";
import { themeFigure } from "@/components/plots/plot-theme";
import { escapeMarkup } from "./escape-markup";

const LABELS = ['<a href="https://example.org">click</a>', "<b>bold</b>", "a &lt; b"];
const SHOWN = ['&lt;a href="https://example.org"&gt;click&lt;/a&gt;', "&lt;b&gt;bold&lt;/b&gt;", "a &amp;lt; b"];

describe("escapeMarkup", () => {
  it("escapes texts at any depth and nothing else", () => {
    expect(escapeMarkup([LABELS[1], [1, null, LABELS[0]]])).toEqual([SHOWN[1], [1, null, SHOWN[0]]]);
  });
});

describe("themeFigure", () => {
  const palette = {} as Palette;

  it("shows labels, tokens and names as text", () => {
    const trace = {
      type: "scatter",
      text: LABELS,
      customdata: LABELS.map((label, expert) => [expert, label]),
      name: LABELS[0],
      y: LABELS,
      x: [1, 2, 3],
      hovertemplate: "%{customdata[1]}<br>%{x}<extra></extra>",
    };
    const layout = { annotations: [{ text: LABELS[1] }], yaxis: { categoryarray: LABELS } };
    const themed = themeFigure({ data: [trace], layout }, palette);
    expect(themed.data[0]).toMatchObject({
      text: SHOWN,
      customdata: SHOWN.map((label, expert) => [expert, label]),
      name: SHOWN[0],
      y: SHOWN,
      x: [1, 2, 3],
      hovertemplate: trace.hovertemplate,
    });
    expect(themed.layout.annotations?.[0]?.text).toBe(SHOWN[1]);
    expect(themed.layout.yaxis?.categoryarray).toEqual(SHOWN);
  });
});

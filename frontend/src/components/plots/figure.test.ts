import { describe, expect, it } from "vitest";

import { DENSITY_AXIS, escapeMarkup, figureTable, readTrace, toCsv } from "./figure";
import { type Palette, themeFigure } from "./plot-theme";

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

const LAYOUT = { xaxis: { title: { text: "tokens" } }, yaxis: { title: "normalised MSE" } };

describe("figure tables", () => {
  it("reads the role from meta in either form", () => {
    expect(readTrace({ meta: "this-run" }).role).toBe("this-run");
    expect(readTrace({ meta: { role: "other" } }).role).toBe("other");
    expect(readTrace({}).role).toBe("");
  });

  it("have one row per point and no empty columns", () => {
    const figure = { data: [{ name: "a", x: [1, 2], y: [0.5, 1 / 3] }], layout: LAYOUT };
    expect(figureTable(figure)).toEqual({
      columns: ["series", "tokens", "normalised MSE"],
      rows: [
        ["a", "1", "0.5"],
        ["a", "2", "0.33333"],
      ],
    });
  });

  it("keep points and labels", () => {
    const figure = { data: [{ x: [1], y: [2], customdata: [52940], text: ['say "may"'] }], layout: {} };
    const table = figureTable(figure);
    expect(table.columns).toEqual(["point", "label", "x", "y"]);
    expect(toCsv(table)).toBe('point,label,x,y\r\n52940,"say ""may""",1,2\r\n');
  });

  it("have the figure's own headers, without traces that only annotate", () => {
    const columns = { series: "", point: ["expert", "", "density, %"], y: "mean activation" };
    const data = [
      { name: "Experts", x: [1], y: [2], customdata: [[7, "dates", 0.1]] },
      { x: [1], y: [2], hoverinfo: "skip" },
    ];
    expect(figureTable({ data, layout: { meta: { columns }, xaxis: { title: "K, log scale" } } })).toEqual({
      columns: ["expert", "density, %", "K", "mean activation"],
      rows: [["7", "0.1", "1", "2"]],
    });
  });

  it("have the ends of error bars", () => {
    const error_x = { array: [0.2, null], arrayminus: [0.1, null] };
    const table = figureTable({ data: [{ x: [0.5, 1], y: ["a", "b"], error_x }], layout: {} });
    expect(table.columns).toEqual(["x", "y", "interval low", "interval high"]);
    expect(table.rows).toEqual([
      ["0.5", "a", "0.4", "0.7"],
      ["1", "b", "", ""],
    ]);
  });

  it("round to five digits, without losing zeros before the point", () => {
    expect(figureTable({ data: [{ x: [10000.4], y: [1 / 3] }], layout: {} }).rows).toEqual([["10000", "0.33333"]]);
  });
});

describe("axes", () => {
  it("write density in percent", () => {
    expect(DENSITY_AXIS.ticktext.at(-1)).toBe("100");
    expect(DENSITY_AXIS.ticktext[0]).toBe("0.00001");
  });
});

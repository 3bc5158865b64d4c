import { expect, test } from "vitest";

import type { FigureData } from "@/api/types";
import { readTrace } from "@/components/plots/figure/figure-data";

import { faithfulnessFigure, faithfulnessHeight } from "./faithfulness-figure";

const figure: FigureData = {
  name: "faithfulness",
  title: "",
  data: [
    {
      type: "scatter",
      name: "this run",
      meta: { role: "this-run" },
      x: [0.01, 0.02, 0.03],
      y: ["one", "two", "one at K 8"],
      customdata: ["one", "two", "one"],
      error_x: { array: [1, 2, 3], arrayminus: [4, 5, 6] },
    },
    {
      type: "scatter",
      name: "baseline",
      meta: { role: "reference" },
      x: [0.3, 0.2, 0.1],
      y: ["one", "two", "one at K 8"],
    },
  ],
  layout: { xaxis: { type: "log" } },
  drawn: 3,
  total: 3,
};

test("only the current run has the accent colour, with its own intervals", () => {
  const { data, layout } = faithfulnessFigure(figure, "one", []);
  const [own, others, baseline] = data.map(readTrace);
  expect(own).toMatchObject({ y: ["one", "one at K 8"], customdata: ["one", "one"] });
  expect(own?.role).toBe("this-run");
  expect(data[0]?.error_x).toMatchObject({ array: [1, 3], arrayminus: [4, 6] });
  expect(others).toMatchObject({ name: "other runs", role: "other", y: ["two"] });
  expect(baseline?.x).toHaveLength(3);
  expect(layout.xaxis).toMatchObject({ type: "log" });
  expect((layout.xaxis as { ticktext: string[] }).ticktext).toContain("0.05");
});

test("a run alone has no other runs in the legend", () => {
  const alone = { ...figure, data: [{ ...figure.data[0], customdata: ["one", "one", "one"] }] };
  expect(faithfulnessFigure(alone, "one", []).data).toHaveLength(1);
});

test("rows name the layer of their run, and are sorted by K", () => {
  const { data, layout } = faithfulnessFigure(figure, "one", [{ name: "one", layer: 3, k: 16 }]);
  expect(readTrace(data[0] ?? {}).y).toEqual(["one at K 8, layer 3", "one at K 16, layer 3"]);
  expect(layout.yaxis).toMatchObject({ categoryarray: ["one at K 8, layer 3", "one at K 16, layer 3", "two"] });
});

test("tips have the value with its interval", () => {
  const [own, , baseline] = faithfulnessFigure(
    {
      ...figure,
      data: figure.data.map((raw) => ({ ...raw, error_x: raw.error_x && { array: [0.1], arrayminus: [0.005] } })),
    },
    "one",
    [],
  ).data;
  expect((own?.hovertemplate as string[])[0]).toBe(
    "one<br>loss increase: 0.0100 (0.0050 to 0.1100) nats per token<extra></extra>",
  );
  expect((baseline?.hovertemplate as string[])[0]).toBe("one<br>baseline: 0.3000 nats per token<extra></extra>");
});

test("every row of a phone has a label above it and room for it", () => {
  const { annotations, yaxis } = faithfulnessFigure(figure, "one", [], true).layout;
  expect(annotations).toMatchObject([{ text: "one" }, { text: "one at K 8" }, { text: "two" }]);
  expect(yaxis).toMatchObject({ showticklabels: false });
  const rows = { data: [{ y: Array.from({ length: 12 }, String) }] };
  expect(faithfulnessHeight(rows, true)).toBeGreaterThan(12 * 30);
});

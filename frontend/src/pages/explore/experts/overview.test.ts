import { expect, test } from "vitest";

import { figureTable } from "@/components/plots/figure";

import { overviewFigure } from "./overview";

const FIGURE = {
  name: "density-activation",
  title: "Experts",
  drawn: 3,
  total: 3,
  layout: {},
  data: [
    {
      type: "scatter",
      name: "Experts",
      meta: { role: "expert" },
      text: ["dates", "years", "no clear label"],
      x: [0.001, 0.0011, 0.5],
      y: [2, 2.05, 1],
      customdata: [
        [7, "dates"],
        [8, "years"],
        [9, null],
      ],
    },
  ],
};
const figure = (experts: readonly number[]) =>
  overviewFigure(FIGURE as unknown as Parameters<typeof overviewFigure>[0], new Set(experts));

test("the map selects the points of some experts", () => {
  expect(figure([8, 9]).data.map((trace) => trace.selectedpoints)).toEqual([[1, 2]]);
  expect(figure([]).data[0]).not.toHaveProperty("selectedpoints");
});

test("the map exports one row per expert, with density in percent", () => {
  const { columns, rows } = figureTable(figure([]));
  expect(columns).toEqual(["expert", "label", "activation density, % of tokens", "mean activation when active"]);
  expect(rows).toEqual([
    ["7", "dates", "0.1", "2"],
    ["8", "years", "0.11", "2.05"],
    ["9", "no clear label", "50", "1"],
  ]);
});

test("the steerable experts have the darkest and largest points", () => {
  const [trace] = FIGURE.data;
  const customdata = [0.01, 0.2, null].map((steerability, i) => [7 + i, null, steerability]);
  const steerable = { ...FIGURE, data: [{ ...trace, customdata }] };
  const { marker } =
    overviewFigure(steerable as unknown as Parameters<typeof overviewFigure>[0], new Set()).data[0] ?? {};
  const { opacity } = marker as { readonly opacity: readonly number[] };
  expect(opacity[1]).toBeGreaterThan(opacity[0] ?? 1);
  expect(opacity[0]).toBeGreaterThan(opacity[2] ?? 1);
});

import { describe, expect, it } from "vitest";

import { figureTable } from "@/components/plots/figure";

import { namedPoints, overviewFigure, overviewPoints, shortLabel, withSelection } from "./overview";

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
} as const;
const NAMES = { count: 5, characters: 28 };
const figure = () => structuredClone(FIGURE) as unknown as Parameters<typeof overviewFigure>[0];

describe("overview of experts", () => {
  it("reads the points with expert and label", () => {
    expect(overviewPoints(figure())[0]).toEqual({ expert: 7, label: "dates", density: 0.001, mean: 2 });
    expect(overviewPoints(figure())[2]?.label).toBeNull();
  });

  it("names the strongest labelled points", () => {
    expect(namedPoints(overviewPoints(figure()), 5).map((point) => point.label)).toEqual(["dates", "years"]);
    expect(namedPoints(overviewPoints(figure()), 1)).toHaveLength(1);
  });

  it("selects the points of some experts", () => {
    const data = figure().data.map((trace) => ({ ...trace, meta: { role: "expert" } }));
    const shown = withSelection(overviewFigure({ ...figure(), data }, NAMES), new Set([8, 9]));
    expect(shown.data.map((trace) => trace.selectedpoints)).toEqual([[1, 2], undefined]);
  });

  it("adds the names as a separate trace", () => {
    expect(overviewFigure(figure(), NAMES).data).toHaveLength(2);
  });

  it("exports one row per expert, with density in percent", () => {
    const { columns, rows } = figureTable(overviewFigure(figure(), NAMES));
    expect(columns).toEqual(["expert", "label", "activation density, % of tokens", "mean activation when active"]);
    expect(rows).toEqual([
      ["7", "dates", "0.1", "2"],
      ["8", "years", "0.11", "2.05"],
      ["9", "no clear label", "50", "1"],
    ]);
  });

  it("connects each name with its point", () => {
    const annotations = overviewFigure(figure(), NAMES).layout.annotations as { text: string; x: number; ax: number }[];
    const dates = annotations.find(({ text }) => text === "dates");
    expect(dates?.x).toBeCloseTo(-1);
    expect(dates?.ax).toBeGreaterThan(-1);
  });

  it("shortens names to their first clause, at a word", () => {
    expect(shortLabel("Fires in early life; promotes childhood", 28)).toBe("Fires in early life");
    expect(shortLabel("Fires on the before numbers and after", 28)).toBe("Fires on the before numbers…");
    expect(shortLabel("a".repeat(40), 28)).toBe("a".repeat(28) + "…");
  });
});

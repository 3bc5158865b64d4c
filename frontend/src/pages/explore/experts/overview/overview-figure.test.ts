import { describe, expect, it } from "vitest";

import { densityRange, namedPoints, overviewFigure, overviewPoints, shortLabel } from "./overview-figure";

const FIGURE = {
  name: "density-activation",
  title: "Experts",
  drawn: 3,
  total: 3,
  layout: {},
  data: [
    {
      type: "scatter",
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
const figure = () => structuredClone(FIGURE) as unknown as Parameters<typeof overviewFigure>[0];

describe("overview of experts", () => {
  it("reads the points with expert and label", () => {
    expect(overviewPoints(figure())[0]).toEqual({ expert: 7, label: "dates", density: 0.001, mean: 2 });
    expect(overviewPoints(figure())[2]?.label).toBeNull();
  });

  it("names no overlapping points", () => {
    expect(namedPoints(overviewPoints(figure()), 5).map((point) => point.label)).toEqual(["years"]);
  });

  it("adds the names as a separate trace", () => {
    expect(overviewFigure(figure(), 5).data).toHaveLength(2);
  });

  it("puts each name on the side with more room", () => {
    expect(overviewFigure(figure(), 5).data[1]?.textposition).toEqual(["middle right"]);
    const dense = figure();
    dense.data[0] = {
      ...dense.data[0],
      customdata: [
        [7, null],
        [8, null],
        [9, "common"],
      ],
    };
    expect(overviewFigure(dense, 5).data[1]?.textposition).toEqual(["middle left"]);
  });

  it("shortens names to their first clause, at a word", () => {
    expect(shortLabel("Fires in early life; promotes childhood")).toBe("Fires in early life");
    expect(shortLabel("Fires on the before ordinals and after")).toBe("Fires on the before ordinals…");
    expect(shortLabel("a".repeat(40))).toBe("a".repeat(30) + "…");
  });

  it("spans the selection, rounded outwards", () => {
    const points = overviewPoints(figure());
    expect(densityRange(points)).toEqual({ min_density: 0.001, max_density: 0.5 });
    expect(densityRange([{ expert: 1, label: null, density: 0.001234, mean: 1 }])).toEqual({
      min_density: 0.0012,
      max_density: 0.0013,
    });
    expect(densityRange([])).toBeNull();
  });
});

import { describe, expect, it } from "vitest";

import type { MetricPoint } from "@/api/types";
import { curveFigure, curveOf, smooth } from "@/pages/run/curves";

function metric(tokens: number, mse: number): MetricPoint {
  return {
    step: tokens,
    tokens,
    normalized_mse: mse,
    dead_share: 0,
    l0: 16,
    max_density: 1,
    tokens_per_second: 9,
    seconds: 1,
  };
}

describe("training curves", () => {
  it("skip steps without a value", () => {
    const metrics = [metric(1, 1), { ...metric(2, 1), stable_rank: 3.5 }, { ...metric(3, 1), stable_rank: null }];
    expect(curveOf(metrics, "stable_rank")).toEqual({ tokens: [2], values: [3.5] });
    expect(curveOf(metrics, "normalized_mse").tokens).toEqual([1, 2, 3]);
  });

  it("are smoothed within their range", () => {
    const values = Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? 1 : 2));
    const smoothed = smooth(values);
    expect(smoothed).toHaveLength(100);
    expect(smoothed[0]).toBe(1);
    expect(Math.abs((smoothed[99] ?? 0) - 1.5)).toBeLessThan(0.1);
  });

  it("have raw, smoothed and other runs' lines, and an end marker", () => {
    const curve = { tokens: [1, 2], values: [1, 0.5] };
    const figure = { name: "normalized_mse", curve, run: "a", axisEnd: 10, heldOut: null } as const;
    expect(curveFigure({ ...figure, other: null }).data).toHaveLength(3);
    expect(curveFigure({ ...figure, other: { run: "b", curve } }).data).toHaveLength(5);
    expect(curveFigure({ ...figure, curve: { tokens: [], values: [] }, other: null }).data).toHaveLength(2);
  });

  it("are labelled with the last logged values, on sides that do not overlap", () => {
    const curve = { tokens: [1, 2, 12], values: [1, 0.5, 0.1] };
    const { data } = curveFigure({
      name: "normalized_mse",
      curve,
      run: "a",
      axisEnd: 10,
      heldOut: 0.6,
      other: { run: "b", curve: { tokens: [1], values: [0.7] } },
    });
    expect(data.slice(-2).map(({ text, textposition }) => [text, textposition])).toEqual([
      [
        ["0.7000", "b"],
        ["top right", "top left"],
      ],
      [
        ["0.5000", "a"],
        ["bottom right", "bottom left"],
      ],
    ]);
  });
});

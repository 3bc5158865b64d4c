import { describe, expect, it } from "vitest";

import { logHeights, shareAbove, trimHistogram } from "@/components/plots/mini-histogram";

describe("histograms", () => {
  it("end with the last non-empty bin", () => {
    expect(trimHistogram({ counts: [3, 0, 1, 0, 0, 0, 0, 0], high: 16 })).toEqual({ counts: [3, 0, 1], high: 6 });
    expect(trimHistogram({ counts: [0, 0], high: 4 })).toEqual({ counts: [0, 0], high: 4 });
  });

  it("count what is above a value, a part of its bin included", () => {
    const histogram = { counts: [4, 2, 2, 0], high: 8 };
    expect(shareAbove(histogram, 2)).toBeCloseTo(0.5);
    expect(shareAbove(histogram, 3)).toBeCloseTo(3 / 8);
    expect(shareAbove(histogram, 8)).toBe(0);
    expect(shareAbove({ counts: [], high: 0 }, 0)).toBe(0);
  });

  it("scale log counts to between 0 and 1", () => {
    const heights = logHeights([0, 9, 99]);
    expect(heights[0]).toBe(0);
    expect(heights[1]).toBeCloseTo(0.5);
    expect(heights[2]).toBe(1);
    expect(logHeights([0])).toEqual([0]);
  });
});

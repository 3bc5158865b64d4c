import { describe, expect, it } from "vitest";

import { logHeights, trimHistogram } from "./histogram";

describe("histograms", () => {
  it("end with the last non-empty bin", () => {
    expect(trimHistogram({ counts: [3, 0, 1, 0, 0, 0, 0, 0], high: 16 })).toEqual({ counts: [3, 0, 1], high: 6 });
    expect(trimHistogram({ counts: [0, 0], high: 4 })).toEqual({ counts: [0, 0], high: 4 });
  });

  it("scale log counts to between 0 and 1", () => {
    const heights = logHeights([0, 9, 99]);
    expect(heights[0]).toBe(0);
    expect(heights[1]).toBeCloseTo(0.5);
    expect(heights[2]).toBe(1);
    expect(logHeights([0])).toEqual([0]);
  });
});

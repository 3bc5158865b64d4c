import { describe, expect, it } from "vitest";

import { divergingClass, sequentialClass, sequentialStep } from "./colour-scale";

describe("sequential scale", () => {
  it("does not shade inactive tokens", () => {
    expect(sequentialClass(0, 5)).toBe("");
    expect(sequentialClass(1, 0)).toBe("");
    expect(sequentialClass(Number.NaN, 5)).toBe("");
  });

  it("shades the weakest activation and never exceeds the last step", () => {
    expect(sequentialClass(0.0001, 5)).toBe("s1");
    expect(sequentialClass(5, 5)).toBe("s9");
    expect(sequentialClass(7, 5)).toBe("s9");
  });

  it("is monotone with equal steps", () => {
    const steps = Array.from({ length: 90 }, (_, i) => sequentialStep((i + 1) / 90, 1));
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
    for (let step = 1; step <= 9; step++) expect(steps.filter((s) => s === step)).toHaveLength(10);
  });
});

describe("diverging scale", () => {
  it("is symmetric and blank around zero", () => {
    expect(divergingClass(0.39, 4)).toBe("");
    expect(divergingClass(0.4, 4)).toBe("u1");
    expect(divergingClass(-2.74, 4)).toBe("d3");
    expect(divergingClass(9, 4)).toBe("u4");
  });
});

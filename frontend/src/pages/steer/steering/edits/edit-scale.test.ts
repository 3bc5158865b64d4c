import { describe, expect, it } from "vitest";

import { describeStrength, editScale, isExcessive } from "./edit-scale";

const STATISTICS = { max_activation: 5, p99: 4 };

describe("the slider of an edit", () => {
  it("is neutral where the edit has no effect", () => {
    expect(editScale("scale")).toMatchObject({ min: 0, max: 8, neutral: 1, sign: "×" });
    expect(editScale("add")).toMatchObject({ min: -8, max: 8, neutral: 0, sign: "+" });
    expect(editScale("set")).toMatchObject({ min: 0, max: 8, neutral: 0, sign: "=" });
  });

  it("describes the strength as an activation", () => {
    expect(describeStrength("add", 2.5, STATISTICS)).toBe(
      "Adds 10.0 (2.5 × its 99th percentile) on each edited token. The largest in the index is 5.0. Steering usually needs more than the natural range.",
    );
    expect(describeStrength("add", -1, STATISTICS)).toBe(
      "Subtracts 4.0 (1.0 × its 99th percentile) on each edited token. The largest in the index is 5.0.",
    );
    expect(describeStrength("set", 0.5, STATISTICS)).toBe(
      "Sets its activation to 2.0 (0.5 × its 99th percentile) on each edited token. The largest in the index is 5.0.",
    );
    expect(describeStrength("scale", 4, STATISTICS)).toBe("");
    expect(describeStrength("add", 4, null)).toBe("");
  });

  it("is excessive above the largest activation and the strengths common for steering", () => {
    expect(isExcessive("add", 3, STATISTICS)).toBe(false);
    expect(isExcessive("set", 6.1, STATISTICS)).toBe(true);
    expect(isExcessive("add", 6.1, { ...STATISTICS, max_activation: 40 })).toBe(false);
    expect(isExcessive("add", -8, STATISTICS)).toBe(false);
    expect(isExcessive("scale", 8, STATISTICS)).toBe(false);
    expect(describeStrength("add", 7, STATISTICS)).toContain("may break the text");
  });
});

import { describe, expect, it } from "vitest";

import { describeStrength, editScale, exceedsRange } from "./edit-scale";

const STATISTICS = { max_activation: 5, p99: 4 };

describe("the slider of an edit", () => {
  it("is neutral where the edit has no effect", () => {
    expect(editScale("scale")).toMatchObject({ min: 0, max: 8, neutral: 1, sign: "×" });
    expect(editScale("add")).toMatchObject({ min: -8, max: 8, neutral: 0, sign: "+" });
    expect(editScale("set")).toMatchObject({ min: 0, max: 8, neutral: 0, sign: "=" });
  });

  it("describes the strength as an activation", () => {
    expect(describeStrength("add", 2.5, STATISTICS)).toBe(
      "Above the expert’s natural range: 10.0 more on each edited token; the largest in the index is 5.0.",
    );
    expect(describeStrength("add", -1, STATISTICS)).toBe(
      "4.0 less on each edited token; the largest in the index is 5.0.",
    );
    expect(describeStrength("set", 0.5, STATISTICS)).toBe("2.0 on each edited token; the largest in the index is 5.0.");
    expect(describeStrength("scale", 4, STATISTICS)).toBe("");
    expect(describeStrength("add", 4, null)).toBe("");
  });

  it("is above the natural range beyond the largest activation", () => {
    expect(exceedsRange("add", 1.25, STATISTICS)).toBe(false);
    expect(exceedsRange("set", 1.3, STATISTICS)).toBe(true);
    expect(exceedsRange("add", -3, STATISTICS)).toBe(false);
    expect(exceedsRange("scale", 8, STATISTICS)).toBe(false);
  });
});

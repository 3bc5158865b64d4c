import { describe, expect, it } from "vitest";

import { editScale, strengthDigits, describeStrength } from "./edit-scale";

const STATISTICS = { max_activation: 5, p99: 4 };

describe("the slider of an edit", () => {
  it("is neutral where the edit has no effect", () => {
    expect(editScale("scale")).toMatchObject({ min: 0, max: 8, neutral: 1, sign: "×" });
    expect(editScale("add")).toMatchObject({ min: -8, max: 8, neutral: 0, sign: "+" });
    expect(editScale("set")).toMatchObject({ min: 0, max: 8, neutral: 0, sign: "=" });
  });

  it("describes the strength as an activation", () => {
    expect(describeStrength("add", 2.5, STATISTICS)).toBe("10.0 more on each edited token; its maximum is 5.0.");
    expect(describeStrength("add", -1, STATISTICS)).toBe("4.0 less on each edited token; its maximum is 5.0.");
    expect(describeStrength("set", 0.5, STATISTICS)).toBe("2.0 on each edited token; its maximum is 5.0.");
    expect(describeStrength("scale", 4, STATISTICS)).toBe("");
    expect(describeStrength("add", 4, null)).toBe("");
  });

  it("shows all typed decimals", () => {
    expect([4, 0.85, -2.5, 0.12345].map(strengthDigits)).toEqual([1, 2, 1, 3]);
  });
});

import { describe, expect, it } from "vitest";

import { editScale, strengthDigits, strengthInWords } from "./edit-scale";

const STATISTICS = { largest: 5, p99: 4 };

describe("the slider of an edit", () => {
  it("has its neutral point where nothing changes", () => {
    expect(editScale("scale")).toMatchObject({ min: 0, max: 8, neutral: 1, sign: "×" });
    expect(editScale("add")).toMatchObject({ min: -8, max: 8, neutral: 0, sign: "+" });
    expect(editScale("set")).toMatchObject({ min: 0, max: 8, neutral: 0, sign: "=" });
  });

  it("says what a strength comes to", () => {
    expect(strengthInWords("add", 2.5, STATISTICS)).toBe("10.0 more on every token; its largest is 5.0.");
    expect(strengthInWords("add", -1, STATISTICS)).toBe("4.0 less on every token; its largest is 5.0.");
    expect(strengthInWords("set", 0.5, STATISTICS)).toBe("2.0 on every token; its largest is 5.0.");
    expect(strengthInWords("scale", 4, STATISTICS)).toBe("");
    expect(strengthInWords("add", 4, null)).toBe("");
  });

  it("hides no decimal that was typed", () => {
    expect([4, 0.85, -2.5, 0.12345].map(strengthDigits)).toEqual([1, 2, 1, 3]);
  });
});

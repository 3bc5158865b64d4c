import { describe, expect, it } from "vitest";

import { ALWAYS, describeCondition, formatCondition, parseCondition } from "./edits";

const FULL = '@when:12>median@when:other-run/3<=0.5@generated@first:20@ramp:5@fade:9@until:"a@b, \\"c\\"\\n"';

describe("conditions", () => {
  it("round-trip as text, with tests as in JSON", () => {
    const condition = parseCondition(FULL);
    expect(condition).not.toBeNull();
    expect(formatCondition(condition ?? ALWAYS)).toBe(FULL);
    expect(condition?.gates).toEqual([
      { expert: 12, above: "median" },
      { expert: 3, run: "other-run", at_most: 0.5 },
    ]);
    expect(formatCondition(ALWAYS)).toBe("");
  });

  it("take an unquoted stop text to the end", () => {
    expect(parseCondition("@first:3@until:a@b")).toEqual({ ...ALWAYS, first: 3, until: "a@b" });
  });

  it("are rejected as a whole", () => {
    for (const text of ["@first:0", "@first:x", "@sometimes", "@when:12=3", "@when:a>1"]) {
      expect(parseCondition(text)).toBeNull();
    }
  });

  it("are described", () => {
    expect(describeCondition(ALWAYS)).toBe("none");
    expect(describeCondition(parseCondition("@generated@first:20@when:12>median@when:3<=0") ?? ALWAYS)).toBe(
      "in the answer, first 20 tokens, when expert 12 is above its median and expert 3 is inactive",
    );
  });
});

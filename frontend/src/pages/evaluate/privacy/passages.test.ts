import { describe, expect, it } from "vitest";

import { EXAMPLE_PASSAGES, isTooShort, splitPassages } from "./passages";

describe("passages", () => {
  it("are distinct paragraphs", () => {
    expect(splitPassages("one\nand on\n \n\n  two\n\none\nand on\n")).toEqual(["one\nand on", "two"]);
    expect(splitPassages(" \n\n ")).toEqual([]);
  });

  it("are too short without tokens after the unprotected ones", () => {
    expect(["Too short", "one two three four", "a b, c"].map(isTooShort)).toEqual([true, true, true]);
    expect(["He lives at 5.", "sk-4f9a8b", "密码是一二三"].map(isTooShort)).toEqual([false, false, false]);
    expect(EXAMPLE_PASSAGES.some(isTooShort)).toBe(false);
  });
});

import { describe, expect, it } from "vitest";

import { opening, sentence } from "./prompts";

const context = (tokens: readonly string[], position: number) => ({
  position,
  tokens,
  token_ids: tokens.map((_, i) => i),
  active: [],
});
const TOKENS = ["He", " left", ".", " It", " may", " rain", ".", " She", " sang"];

describe("prompts out of contexts", () => {
  it("take the sentence around the peak", () => {
    expect(sentence(context(TOKENS, 4))).toBe("It may rain.");
    expect(sentence(context(TOKENS, 8))).toBe("She sang");
  });

  it("end on the peak where a text is to go on", () => {
    expect(opening(context(TOKENS, 5))).toBe("It may rain");
    expect(opening(context(TOKENS, 0))).toBe("He");
  });

  it("leave out the marks between texts", () => {
    const between = ["Over", "<|endoftext|>", "She", " sang", "<|endoftext|>", "He"];
    expect(sentence(context(between, 3))).toBe("She sang");
    expect(opening(context(between, 3))).toBe("She sang");
  });

  it("end with the peak's word where a text is to go on", () => {
    expect(opening(context([" To", " S", "pei", "-", "Platz"], 1))).toBe("To Spei");
  });

  it("cut neither end inside a word", () => {
    const inner = Array.from({ length: 30 }, () => "y");
    expect(sentence(context(["x", ...inner, " word", " peak", " end", ...inner], 32))).toBe("word peak");
    expect(opening(context(["x", ...inner, " word", " peak"], 32))).toBe("word peak");
  });
});

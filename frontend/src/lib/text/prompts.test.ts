import { describe, expect, it } from "vitest";

import { continuationPrompt, sentencePrompt } from "./kwic";

const example = (tokens: readonly string[], position: number) => ({
  position,
  tokens,
  token_ids: tokens.map((_, i) => i),
  active: [],
});
const TOKENS = ["He", " left", ".", " It", " may", " rain", ".", " She", " sang"];

describe("prompts from examples", () => {
  it("take the sentence around the peak", () => {
    expect(sentencePrompt(example(TOKENS, 4))).toBe("It may rain.");
    expect(sentencePrompt(example(TOKENS, 8))).toBe("She sang");
  });

  it("end on the peak for continuation", () => {
    expect(continuationPrompt(example(TOKENS, 5))).toBe("It may rain");
    expect(continuationPrompt(example(TOKENS, 0))).toBe("He");
  });

  it("leave out special tokens", () => {
    const between = ["Over", "<|endoftext|>", "She", " sang", "<|endoftext|>", "He"];
    expect(sentencePrompt(example(between, 3))).toBe("She sang");
    expect(continuationPrompt(example(between, 3))).toBe("She sang");
  });

  it("end with the peak's whole word for continuation", () => {
    expect(continuationPrompt(example([" To", " S", "pei", "-", "Platz"], 1))).toBe("To Spei");
  });

  it("do not cut words at either end", () => {
    const inner = Array.from({ length: 30 }, () => "y");
    expect(sentencePrompt(example(["x", ...inner, " word", " peak", " end", ...inner], 32))).toBe("word peak");
    expect(continuationPrompt(example(["x", ...inner, " word", " peak"], 32))).toBe("word peak");
  });
});

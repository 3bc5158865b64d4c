import { describe, expect, it } from "vitest";

import type { Context } from "@/api/types";

import { generationPrompt, UNRELATED_PROMPT, routingPrompt } from "./home-prompts";

function context(tokens: string[], position: number, active: number[] = [position]): Context {
  return {
    bin: 0,
    rank: 0,
    sequence: 0,
    position,
    coefficient: 1,
    tokens,
    token_ids: tokens.map((_, i) => i),
    active: active.map((at) => [at, 1, 0]),
  };
}

const TOKENS = ["He", " left", ".", " It", " may", " rain", " a", " lot", " there", ".", " She", " sang"];

describe("prompts of the home page", () => {
  it("take the sentence around the peak", () => {
    expect(routingPrompt([context(TOKENS, 4)])).toBe("It may rain a lot there.");
    expect(routingPrompt([])).toBe("");
  });

  it("prefer the sentence in which the expert is active most often", () => {
    const twice = context(["Or", " may", " be", " may", "."], 1, [1, 3]);
    expect(routingPrompt([context(TOKENS, 4), twice])).toBe("Or may be may.");
  });

  it("end with the peak for scaling", () => {
    expect(generationPrompt([context(TOKENS, 4), context(TOKENS, 5)], "scale")).toBe("It may rain");
    expect(generationPrompt([context(TOKENS, 4)], "scale")).toBe("It may");
    expect(generationPrompt([], "scale")).toBe("");
  });

  it("are unrelated to the expert for adding", () => {
    expect(generationPrompt([context(TOKENS, 4)], "add")).toBe(UNRELATED_PROMPT);
    expect(generationPrompt([], "add")).toBe("");
  });

  it("do not cut words at either end", () => {
    const inner = Array.from({ length: 30 }, () => "y");
    expect(routingPrompt([context(["x", ...inner, " word", " peak", " end", ...inner], 32)])).toBe("word peak");
  });
});

import { describe, expect, it } from "vitest";

import type { Context } from "@/api/types";

import { generationPrompt, routingPrompt } from "./home-prompts";

function context(tokens: string[], position: number): Context {
  return {
    interval: 0,
    rank: 0,
    sequence: 0,
    position,
    coefficient: 1,
    tokens,
    token_ids: tokens.map((_, i) => i),
    active: [[position, 1]],
  };
}

const TOKENS = ["He", " left", ".", " It", " may", " rain", ".", " She", " sang"];

describe("prompts of the home page", () => {
  it("take the sentence around the peak", () => {
    expect(routingPrompt([context(TOKENS, 4)])).toBe("It may rain.");
    expect(routingPrompt([])).toBe("");
  });

  it("end a prompt to go on from with the peak", () => {
    expect(generationPrompt([context(TOKENS, 4), context(TOKENS, 5)])).toBe("It may rain");
    expect(generationPrompt([context(TOKENS, 4)])).toBe("It may");
  });

  it("do not begin inside a word where no sentence begins", () => {
    const long = ["x", ...Array.from({ length: 20 }, () => "y"), " word", " peak", " end"];
    expect(routingPrompt([context(long, 22)])).toBe("word peak end");
  });
});

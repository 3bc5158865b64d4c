import { describe, expect, it } from "vitest";

import type { RoutedToken } from "@/api/types";

import { coefficientOf, promptPieces, strongestToken, wordGroups } from "./routed-tokens";

function token(text: string, experts: [number, number][], start = false): RoutedToken {
  return {
    id: 1,
    text,
    start,
    experts: experts.map(([expert, coefficient]) => ({ expert, coefficient, share: 0.5 })),
  };
}

const TOKENS = [token("<s>", [[7, 9]], true), token("It", []), token(" may", [[7, 5]]), token("", [[7, 8]])];

describe("a routed prompt", () => {
  it("leaves out the start token and tokens without text", () => {
    expect(promptPieces(TOKENS, 7).map((piece) => [piece.index, piece.value])).toEqual([
      [1, null],
      [2, 5],
    ]);
  });

  it("keeps the tokens of a word together", () => {
    const pieces = promptPieces([token("oubli", []), token("é", []), token(" tout", []), token(".", [])], 7);
    expect(wordGroups(pieces).map((word) => word.map((piece) => piece.text))).toEqual([
      ["oubli", "é"],
      [" tout", "."],
    ]);
    expect(wordGroups([])).toEqual([]);
  });

  it("finds the token with the strongest activation", () => {
    expect(strongestToken(TOKENS, 7)).toBe(2);
    expect(strongestToken(TOKENS, 8)).toBe(1);
    expect(strongestToken([], 8)).toBeNull();
    expect(coefficientOf(TOKENS[2] ?? token("", []), 7)).toBe(5);
  });
});

import { describe, expect, it } from "vitest";

import { joinTokens, kwicWindow, pieces, snippet } from "./kwic";

const EXAMPLE = {
  position: 2,
  token_ids: [5, 6, 7, 8, 9],
  tokens: ["It", " is", " may", " be", "\n"],
  active: [
    [2, 6.8],
    [3, 1.5],
  ],
} as const;

describe("kwic", () => {
  it("gives each token its id and activation", () => {
    expect(pieces(EXAMPLE)[2]).toEqual({ index: 2, id: 7, text: " may", value: 6.8 });
    expect(pieces(EXAMPLE)[0]?.value).toBeNull();
    expect(joinTokens(EXAMPLE)).toBe("It is may be\n");
  });

  it("splits around the peak in reading order", () => {
    const window = kwicWindow(EXAMPLE, 100, 100);
    expect(window?.left.map((piece) => piece.text)).toEqual(["It", " is"]);
    expect(window?.peak.text).toBe(" may");
    expect(window?.right.map((piece) => piece.text)).toEqual([" be", "\n"]);
  });

  it("stops once the width is filled", () => {
    const window = kwicWindow(EXAMPLE, 2, 1);
    expect(window?.left.map((piece) => piece.text)).toEqual([" is"]);
    expect(window?.right.map((piece) => piece.text)).toEqual([" be"]);
  });

  it("is null for a position outside the sequence", () => {
    expect(kwicWindow({ ...EXAMPLE, position: 9 }, 10, 10)).toBeNull();
  });

  it("cuts snippets at the ends of the sequence", () => {
    expect(snippet(EXAMPLE, 1).map((piece) => piece.index)).toEqual([1, 2, 3]);
    expect(snippet({ ...EXAMPLE, position: 0 }, 1).map((piece) => piece.index)).toEqual([0, 1]);
  });
});

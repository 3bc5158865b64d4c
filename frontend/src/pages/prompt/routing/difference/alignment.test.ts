import { describe, expect, it } from "vitest";

import { alignTokens } from "./alignment";

describe("token alignment", () => {
  it("pairs equal and replaced tokens", () => {
    expect(alignTokens([1, 2, 3], [1, 9, 3])).toEqual([
      { a: 0, b: 0 },
      { a: 1, b: 1 },
      { a: 2, b: 2 },
    ]);
  });

  it("leaves gaps for insertions", () => {
    expect(alignTokens([1, 2, 3, 4], [1, 4])).toEqual([
      { a: 0, b: 0 },
      { a: 1, b: null },
      { a: 2, b: null },
      { a: 3, b: 1 },
    ]);
    expect(alignTokens([], [5])).toEqual([{ a: null, b: 0 }]);
  });

  it("contains every token once, in order", () => {
    const a = Array.from({ length: 60 }, (_, i) => (i * 7) % 11);
    const b = Array.from({ length: 45 }, (_, i) => (i * 5) % 11);
    const pairs = alignTokens(a, b);
    expect(pairs.flatMap((pair) => (pair.a === null ? [] : [pair.a]))).toEqual(a.map((_, i) => i));
    expect(pairs.flatMap((pair) => (pair.b === null ? [] : [pair.b]))).toEqual(b.map((_, i) => i));
  });
});

import { describe, expect, it } from "vitest";

import type { ComparedExpert, MatchedPair } from "@/api/types";

import { sortPairs } from "./match-order";

const expert = (id: number, density: number): ComparedExpert => ({
  expert: id,
  label: null,
  automatic: null,
  density,
  top_tokens: [],
});

const pair = (id: number, density: number, cosine: number, mutual: boolean): MatchedPair => ({
  one: expert(id, density),
  other: expert(10 + id, 1 - density),
  cosine,
  mutual,
});

const PAIRS = [pair(0, 0.5, 0.2, true), pair(1, 0.4, 0.9, false), pair(2, 0.3, 0.2, true)];

const ids = (pairs: readonly MatchedPair[]) => pairs.map(({ one }) => one.expert);

describe("matched experts", () => {
  it("are sorted in both directions, with stable ties", () => {
    expect(ids(sortPairs(PAIRS, { sort: "cosine", order: "desc", mutual: false }))).toEqual([1, 0, 2]);
    expect(ids(sortPairs(PAIRS, { sort: "cosine", order: "asc", mutual: false }))).toEqual([0, 2, 1]);
    expect(ids(sortPairs(PAIRS, { sort: "density", order: "asc", mutual: false }))).toEqual([2, 1, 0]);
    expect(ids(sortPairs(PAIRS, { sort: "other_density", order: "desc", mutual: false }))).toEqual([2, 1, 0]);
  });

  it("are filtered to mutual matches", () => {
    expect(ids(sortPairs(PAIRS, { sort: "density", order: "desc", mutual: true }))).toEqual([0, 2]);
  });

  it("do not modify the server's list", () => {
    sortPairs(PAIRS, { sort: "cosine", order: "asc", mutual: false });
    expect(ids(PAIRS)).toEqual([0, 1, 2]);
  });
});

import { describe, expect, it } from "vitest";

import type { ComparedExpert, MatchedPair } from "@/api/types";

import { orderedPairs } from "./match-order";

const expert = (id: number, usage: number): ComparedExpert => ({
  expert: id,
  label: null,
  automatic: null,
  usage,
  top_tokens: [],
});

const pair = (id: number, usage: number, cosine: number, mutual: boolean): MatchedPair => ({
  one: expert(id, usage),
  other: expert(10 + id, 1 - usage),
  cosine,
  mutual,
});

const PAIRS = [pair(0, 0.5, 0.2, true), pair(1, 0.4, 0.9, false), pair(2, 0.3, 0.2, true)];

const ids = (pairs: readonly MatchedPair[]) => pairs.map(({ one }) => one.expert);

describe("matched experts", () => {
  it("are sorted either way, and equal ones stay in place", () => {
    expect(ids(orderedPairs(PAIRS, { sort: "cosine", order: "desc", mutual: false }))).toEqual([1, 0, 2]);
    expect(ids(orderedPairs(PAIRS, { sort: "cosine", order: "asc", mutual: false }))).toEqual([0, 2, 1]);
    expect(ids(orderedPairs(PAIRS, { sort: "usage", order: "asc", mutual: false }))).toEqual([2, 1, 0]);
    expect(ids(orderedPairs(PAIRS, { sort: "other_usage", order: "desc", mutual: false }))).toEqual([2, 1, 0]);
  });

  it("are left out where they are not mutual and only these are asked for", () => {
    expect(ids(orderedPairs(PAIRS, { sort: "usage", order: "desc", mutual: true }))).toEqual([0, 2]);
  });

  it("leave what came from the server as it is", () => {
    orderedPairs(PAIRS, { sort: "cosine", order: "asc", mutual: false });
    expect(ids(PAIRS)).toEqual([0, 1, 2]);
  });
});

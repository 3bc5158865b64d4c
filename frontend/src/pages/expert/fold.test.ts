import { describe, expect, it } from "vitest";

import type { Context } from "@/api/types";

import { folded } from "./fold";

function context(rank: number, ids: readonly number[], position: number): Context {
  const tokens = ids.map(String);
  return { interval: 0, rank, sequence: rank, position, coefficient: 1, token_ids: [...ids], tokens, active: [] };
}

const LONG = Array.from({ length: 40 }, (_, i) => i);

describe("folding", () => {
  it("keeps the first of those that read the same around their token", () => {
    const other = LONG.map((id, i) => (i === 39 ? 99 : id));
    const { contexts, left } = folded([context(0, LONG, 20), context(1, other, 20), context(2, LONG, 21)]);
    expect(contexts.map((one) => one.rank)).toEqual([0, 2]);
    expect(left).toBe(1);
  });

  it("leaves different ones alone", () => {
    expect(folded([context(0, [1, 2], 0), context(1, [1, 3], 0)]).left).toBe(0);
  });
});

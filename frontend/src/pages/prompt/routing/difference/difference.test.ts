import { describe, expect, it, test } from "vitest";

import type { RoutingResponse } from "@/api/types";

import {
  alignRoutings,
  byScore,
  differenceRows,
  differingShare,
  firstDifference,
  isAlike,
  placesOf,
  tellingOf,
} from "./difference";

type Active = readonly (readonly [number, number])[];
const token = (id: number, active: Active, start = false) => ({
  id,
  start,
  text: `t${id}`,
  experts: active.map(([expert, activation]) => ({ expert, activation, share: 1 })),
});
const routing = (tokens: readonly object[]) =>
  ({ tokens, experts: { 7: { label: "seven" } } }) as unknown as RoutingResponse;

const A = routing([
  token(0, [[9, 5]], true),
  token(1, [[7, 1]]),
  token(2, [
    [7, 2],
    [8, 1],
  ]),
]);
const B = routing([token(0, [[9, 1]], true), token(1, [[7, 4]]), token(3, [[8, 1]])]);

describe("the difference between two routings", () => {
  const pairs = alignRoutings(A, B);
  const rows = differenceRows(pairs, A.experts);
  const every = new Set(pairs.keys());
  const numbers = (part: ReadonlySet<number> | null, of = rows) =>
    byScore(of, part, true).map(({ row, change }) => [row.expert, change]);

  it("is computed by token pair, without the start token", () => {
    expect(pairs.map((pair) => [pair.a?.id, pair.b?.id])).toEqual([
      [1, 1],
      [2, 3],
    ]);
    expect([firstDifference(pairs), firstDifference(alignRoutings(A, A))]).toEqual([1, 0]);
    expect(numbers(every)).toEqual([[7, 3]]); // 8 is equally active on the changed token
    expect(numbers(new Set([1]))).toEqual([[7, -2]]);
    expect(rows[0]?.info?.label).toBe("seven");
  });

  it("is ranked by size × rarity", () => {
    const experts = { 7: { density: 0.9 }, 8: { density: 0.001 } } as unknown as RoutingResponse["experts"];
    const longer = alignRoutings(A, routing([token(1, [[7, 4]]), token(3, [[8, 2]])]));
    for (const part of [new Set([0, 1]), null]) {
      expect(numbers(part, differenceRows(longer, experts)).map(([expert]) => expert)).toEqual([8, 7]);
    }
    const unnamed = { density: 0.001, label: null, automatic: null };
    const named = (density: number) =>
      differenceRows(longer, { 7: { ...unnamed, density, label: "seven" }, 8: unnamed } as never);
    const first = [0.1, 0.9].map((density) => byScore(named(density), null, false)[0]?.row.expert);
    expect(first).toEqual([7, 8]); // weak labels last, but those of small scores do not come first
  });

  it("sums over whole texts if tokens are not aligned", () => {
    expect(numbers(null)).toEqual([[7, 1]]);
    expect(rows[0]).toMatchObject({ a: 3, b: 4, peak: "t1" });
  });

  it("is 0 where both texts activate the same experts equally, and 1 where none is in both", () => {
    expect(differingShare(rows, new Set([0]))).toBe(0.75); // 1 of 4
    expect(differingShare(rows, new Set([1]))).toBeCloseTo(2 / 3); // 1 of 3
    expect(differingShare(rows, null)).toBeCloseTo(1 - 4 / 5);
    const other = alignRoutings(A, routing([token(1, [[5, 1]]), token(3, [])]));
    expect(differingShare(differenceRows(other, A.experts), every)).toBe(1);
    const same = alignRoutings(A, A);
    expect([
      differingShare(differenceRows(same, A.experts), every),
      byScore(differenceRows(same, {}), every, true),
    ]).toEqual([0, []]);
  });

  it("has a line for each changed word and the equal tokens after it, by the first experts of the table", () => {
    const longer = alignRoutings(
      routing([token(1, []), token(2, [[7, 2], [8, 1]]), token(4, [[7, 3]])]), // prettier-ignore
      routing([token(1, []), token(3, [[8, 4]]), token(4, [[7, 1]])]),
    );
    const { changed, equal } = placesOf(longer);
    expect([changed.map(({ a, b }) => [a, b]), [...equal]]).toEqual([[["t2", "t3"]], [2]]);
    const info = { label: null, automatic: null, density: 0.25 };
    const named = { 7: { ...info, label: "seven" }, 8: info } as unknown as typeof A.experts;
    const told = (part: ReadonlySet<number>, isMixed = true) =>
      Object.values(tellingOf(differenceRows(longer, named), part, isMixed)).map((found) =>
        found.map(({ row, change, score }) => [row.expert, change, score]),
      );
    expect(changed.map(({ part }) => told(part))).toEqual([[[[8, 3, 6], [7, -2, 4]], []]]); // prettier-ignore
    expect(changed.map(({ part }) => told(part, false))).toEqual([[[[7, -2, 4]], [[8, 3, 6]]]]); // weak, but larger
    expect(told(equal)).toEqual([[[7, -2, 4]], []]);
    expect([isAlike(longer), isAlike(pairs), isAlike(longer.slice(1, 2))]).toEqual([true, true, false]);
  });
});

/** Tokens of each pair: ids of two texts, where 0 stands for none. */
const aligned = (...texts: readonly [readonly number[], readonly number[]]) => {
  const [a, b] = texts.map((ids) => routing(ids.map((id) => token(id, [])))) as [RoutingResponse, RoutingResponse];
  return alignRoutings(a, b).map((pair) => [pair.a?.id ?? 0, pair.b?.id ?? 0]);
};

test.each([
  ["replaced", [1, 2, 3], [1, 9, 3], "1-1 2-9 3-3"],
  ["left out", [1, 2, 3, 4], [1, 4], "1-1 2-0 3-0 4-4"],
  ["added", [], [5], "0-5"],
])("a token that is %s", (_, a, b, pairs) => {
  expect(
    aligned(a, b)
      .map((pair) => pair.join("-"))
      .join(" "),
  ).toBe(pairs);
});

test("an alignment contains every token once, in order", () => {
  const a = Array.from({ length: 60 }, (_, i) => 1 + ((i * 7) % 11));
  const b = Array.from({ length: 45 }, (_, i) => 1 + ((i * 5) % 11));
  const pairs = aligned(a, b);
  expect(pairs.map(([id]) => id).filter((id) => id !== 0)).toEqual(a);
  expect(pairs.map(([, id]) => id).filter((id) => id !== 0)).toEqual(b);
});

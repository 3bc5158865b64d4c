import { describe, expect, it, test } from "vitest";

import type { RoutingResponse } from "@/api/types";

import { alignRoutings, changedWords, differenceRows, firstDifference } from "./difference";

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

  it("is computed by token pair, without the start token", () => {
    expect(pairs.map((pair) => [pair.a?.id, pair.b?.id])).toEqual([
      [1, 1],
      [2, 3],
    ]);
    expect([firstDifference(pairs), firstDifference(alignRoutings(A, A))]).toEqual([1, 0]);
    const rows = differenceRows(pairs, A.experts, "aligned");
    expect(rows.map((row) => row.expert)).toEqual([7, 8]);
    expect([...(rows[0]?.cells ?? [])]).toEqual([
      [0, 3],
      [1, -2],
    ]);
    expect(rows[0]?.info?.label).toBe("seven");
    expect(rows[0]?.largest).toBe(3);
  });

  it("is ranked by size × rarity", () => {
    const experts = { 7: { density: 0.9 }, 8: { density: 0.001 } } as unknown as RoutingResponse["experts"];
    for (const order of ["aligned", "apart"] as const) {
      const longer = alignRoutings(A, routing([token(1, [[7, 4]]), token(3, [[8, 2]])]));
      expect(differenceRows(longer, experts, order).map((row) => row.expert)).toEqual([8, 7]);
    }
  });

  it("sums over whole texts if tokens are not aligned", () => {
    const [first, second] = differenceRows(pairs, A.experts, "apart");
    expect([first?.a, first?.b, first?.change]).toEqual([3, 4, 1]);
    expect(second?.change).toBe(0);
  });

  it("names the first expert of each changed word in the order of the table, or one with half the score and a label", () => {
    const told = (density: number, label: string | null = null) => {
      const info = { label: null, automatic: null, density: 0.25 };
      const experts = { 7: info, 8: { ...info, label, density } } as unknown as typeof A.experts;
      const longer = alignRoutings(A, routing([token(1, [[7, 4]]), token(3, [])]));
      return changedWords(longer, differenceRows(longer, experts, "aligned")).map(({ a, b, told }) => [
        ...[a, b],
        ...told.map(({ row, value, score }) => [row.expert, value, score]),
      ]);
    };
    expect(told(0.125)).toEqual([["t2", "t3", [7, -2, 4]]]);
    expect(told(1 / 32)).toEqual([["t2", "t3", [8, -1, 5]]]);
    expect(told(0.25, "mine")).toEqual([["t2", "t3", [8, -1, 2]]]);
    expect(told(0.5, "mine")).toEqual([["t2", "t3", [7, -2, 4]]]);
  });

  it("is empty for identical texts", () => {
    const rows = differenceRows(alignRoutings(A, A), A.experts, "aligned");
    expect(rows.every((row) => row.largest === 0 && row.change === 0)).toBe(true);
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

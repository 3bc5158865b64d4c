import { describe, expect, it } from "vitest";

import type { RoutedToken, RoutingResponse } from "@/api/types";

import { cellDigits, formatKl, heatColumns, heatRows, meanKl, scaleEnd, withinUsage } from "./heat-rows";

function token(text: string, experts: readonly (readonly [number, number])[], more: Partial<RoutedToken> = {}) {
  return {
    id: 1,
    text,
    start: false,
    experts: experts.map(([expert, coefficient]) => ({ expert, coefficient, share: 1 / experts.length })),
    ...more,
  } satisfies RoutedToken;
}

const info = (usage: number | null, label: string | null = null) => ({
  label,
  automatic: null,
  usage,
  largest: 10,
  top_tokens: [],
});

const EXPERTS: RoutingResponse["experts"] = {
  3: info(0.9, "everywhere"),
  5: info(0.01),
  8: info(0.0001),
};
const TOKENS = [
  token("<s>", [[99, 500]], { start: true }),
  token("The", [
    [3, 2],
    [5, 1],
  ]),
  token(" end", [
    [5, 6],
    [3, 2],
    [8, 0.5],
  ]),
  token(".", [[3, 2.5]]),
];
const PREDICTED = [5, 0.1, 0.1, 0.3].map((kl) => ({ kl, predictions: [] }));
const columns = heatColumns({ tokens: TOKENS }, false);
const order = (ranking: Parameters<typeof heatRows>[2]) => heatRows(columns, EXPERTS, ranking).map((row) => row.expert);

describe("columns of the map", () => {
  it("leave the start token out until it is asked for", () => {
    expect(columns.map(({ position }) => position)).toEqual([1, 2, 3]);
    expect(heatColumns({ tokens: TOKENS }, true)).toHaveLength(4);
    expect(meanKl(columns, PREDICTED)).toBe("0.167");
    expect(meanKl(columns, undefined)).toBe("…");
    expect(meanKl([], PREDICTED)).toBe("0.000");
  });
});

describe("rows of the map", () => {
  it("are ranked by sum, by largest coefficient, or the rarest first", () => {
    expect(order("summed")).toEqual([5, 3, 8]);
    expect(order("largest")).toEqual([5, 3, 8]);
    expect(order("rarest")).toEqual([8, 5, 3]);
  });

  it("break ties by sum, then by id", () => {
    const tied = heatColumns({ tokens: [token("a", [[4, 1], [2, 1]]), token("b", [[7, 1]]), token("c", [[7, 1]])] }, false); // prettier-ignore
    expect(heatRows(tied, {}, "largest").map((row) => row.expert)).toEqual([7, 2, 4]);
    expect(heatRows(tied, {}, "rarest").map((row) => row.expert)).toEqual([7, 2, 4]);
  });

  it("know their cells, with their place on the token", () => {
    const row = heatRows(columns, EXPERTS, "summed").find(({ expert }) => expert === 3);
    expect(row?.sum).toBeCloseTo(6.5);
    expect(row?.largest).toBe(2.5);
    expect(row?.cells.get(2)).toEqual({ coefficient: 2, share: 1 / 3, rank: 2, of: 3 });
    expect(row?.cells.has(0)).toBe(false);
  });

  it("mark experts that are active nearly everywhere", () => {
    expect(heatRows(columns, EXPERTS, "summed").filter((row) => row.isShared).map((row) => row.expert)).toEqual([3]); // prettier-ignore
    const unknown = heatColumns({ tokens: Array.from({ length: 6 }, () => token("a", [[1, 1]])) }, false);
    expect(heatRows(unknown, {}, "summed")[0]?.isShared).toBe(true);
    expect(heatRows(unknown.slice(0, 3), {}, "summed")[0]?.isShared).toBe(false);
  });

  it("share one scale, which the hidden start token does not stretch", () => {
    expect(scaleEnd(heatRows(columns, EXPERTS, "summed"))).toBe(6);
    expect(scaleEnd([])).toBe(1);
  });
});

describe("numbers of the map", () => {
  it("have as many decimals as fit", () => {
    expect([0.6, 3, 4, 80, 200].map(cellDigits)).toEqual([2, 2, 1, 1, 0]);
    expect([0.0123, 0.9999, 1.234, 12.34].map(formatKl)).toEqual([".012", "1.00", "1.23", "12.3"]);
  });
});

describe("the usage filter", () => {
  const rows = heatRows(columns, EXPERTS, "often");

  it("leaves out what is active more often, and keeps what nobody knows", () => {
    expect(withinUsage(rows, 100)).toBe(rows);
    expect(withinUsage(rows, 0).every((row) => row.info.usage === null || row.info.usage === 0)).toBe(true);
  });

  it("goes with a ranking by how many tokens an expert is active on", () => {
    const counts = rows.map((row) => row.cells.size);
    expect(counts).toEqual(counts.toSorted((a, b) => b - a));
  });
});

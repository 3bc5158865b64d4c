import { describe, expect, it } from "vitest";

import type { RoutedToken, RoutingResponse } from "@/api/types";

import {
  cellDigits,
  columnOffsets,
  columnText,
  columnWidth,
  filterByDensity,
  formatKl,
  heatColumns,
  heatRows,
  inGroups,
  meanKl,
  mostSpecific,
  routingTable,
  scaleEnd,
  scoreAt,
  shownRows,
  tokenFirst,
  visibleColumns,
} from "./heat-rows";

function token(text: string, experts: readonly (readonly [number, number])[], more: Partial<RoutedToken> = {}) {
  return {
    id: 1,
    text,
    start: false,
    experts: experts.map(([expert, activation]) => ({ expert, activation, share: 1 / experts.length })),
    ...more,
  } satisfies RoutedToken;
}

const info = (density: number | null, label: string | null = null) => ({
  label,
  automatic: null,
  density,
  max_activation: 10,
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
const PREDICTED = [5, 0.1, 0.1, 0.3].map((kl) => ({ kl, zeroed_kl: 2 * kl, predictions: [] }));
const columns = heatColumns({ tokens: TOKENS }, false);
const order = (ranking: Parameters<typeof heatRows>[2]) => heatRows(columns, EXPERTS, ranking).map((row) => row.expert);

describe("heat map columns", () => {
  it("omit the start token by default", () => {
    expect(columns.map(({ position }) => position)).toEqual([1, 2, 3]);
    expect(heatColumns({ tokens: TOKENS }, true)).toHaveLength(4);
    expect(meanKl(columns, PREDICTED, "kl")).toBe("0.167");
    expect(meanKl(columns, PREDICTED, "zeroed_kl")).toBe("0.333");
    expect(meanKl(columns, undefined, "kl").trim()).toBe("…");
    expect(meanKl([], PREDICTED, "kl")).toBe("0.000");
  });
});

describe("heat map rows", () => {
  it("are ranked by sum, by max activation, or by rarity", () => {
    expect(order("specific")).toEqual([5, 3, 8]); // 8 has a larger score than 3, but is the second on its token
    expect(order("summed")).toEqual([5, 3, 8]);
    expect(order("largest")).toEqual([5, 3, 8]);
    expect(order("rarest")).toEqual([8, 5, 3]);
  });

  it("that are shown include one of every token", () => {
    const on = heatColumns({ tokens: [token("a", [[1, 9], [2, 8]]), token("b", [[3, 1], [4, 2]])] }, false); // prettier-ignore
    const rows = heatRows(on, {}, "summed");
    expect(shownRows(rows, on, 1).map((row) => row.expert)).toEqual([1, 4]);
    expect(shownRows(rows, on, 3).map((row) => row.expert)).toEqual([1, 2, 4]);
  });

  it("of a token come first, by activation × rarity", () => {
    const on = heatColumns({ tokens: [token("a", [[3, 1]]), token("b", [[1, 9], [2, 8]])] }, false); // prettier-ignore
    const experts = { 1: { density: 1 }, 2: { density: 0.01 } } as unknown as Parameters<typeof heatRows>[1];
    expect(tokenFirst(heatRows(on, experts, "summed"), 1).map((row) => row.expert)).toEqual([2, 1, 3]);
    const [, second] = on;
    expect(second === undefined ? [] : mostSpecific(second.token, experts).map((one) => one.expert)).toEqual([2, 1]);
  });

  it("are shown by score, those of a locked token first", () => {
    const shown = (locked: number | null) =>
      inGroups(heatRows(columns, EXPERTS, "specific"), "specific", locked, true).map((row) => [
        row.expert,
        Number(scoreAt(row, locked).toFixed(2)),
      ]);
    const scores = shown(null).map(([, score]) => Number(score));
    expect(scores).toEqual(scores.toSorted((a, b) => b - a));
    const on = heatRows(columns, EXPERTS, "specific").filter(({ cells }) => cells.has(3)).length;
    expect(
      shown(3)
        .map(([expert]) => expert)
        .slice(0, on)
        .toSorted(),
    ).toEqual(
      heatRows(columns, EXPERTS, "specific")
        .filter(({ cells }) => cells.has(3))
        .map(({ expert }) => expert)
        .toSorted(),
    );
  });

  it("break ties by sum, then by id", () => {
    const tied = heatColumns({ tokens: [token("a", [[4, 1], [2, 1]]), token("b", [[7, 1]]), token("c", [[7, 1]])] }, false); // prettier-ignore
    expect(heatRows(tied, {}, "largest").map((row) => row.expert)).toEqual([7, 2, 4]);
    expect(heatRows(tied, {}, "rarest").map((row) => row.expert)).toEqual([7, 2, 4]);
  });

  it("have cells with rank", () => {
    const row = heatRows(columns, EXPERTS, "summed").find(({ expert }) => expert === 3);
    expect(row?.sum).toBeCloseTo(6.5);
    expect(row?.largest).toBe(2.5);
    expect(row?.cells.get(2)).toEqual({ activation: 2, share: 1 / 3, rank: 2, activeExperts: 3 });
    expect(row?.cells.has(0)).toBe(false);
  });

  it("share one scale, which ignores the hidden start token", () => {
    expect(scaleEnd(heatRows(columns, EXPERTS, "summed"))).toBe(6);
    expect(scaleEnd([])).toBe(1);
  });
});

describe("heat map numbers", () => {
  it("have as many decimals as fit", () => {
    expect([0.6, 3, 4, 80, 200].map(cellDigits)).toEqual([2, 2, 1, 1, 0]);
    expect([0.0123, 0.9999, 1.234, 12.34].map(formatKl)).toEqual([".012", "1.00", "1.23", "12.3"]);
  });
});

describe("the density filter", () => {
  const rows = heatRows(columns, EXPERTS, "often");

  it("hides experts of higher density and keeps those of unknown density", () => {
    expect(filterByDensity(rows, 100)).toBe(rows);
    expect(filterByDensity(rows, 0).every((row) => row.info.density === null || row.info.density === 0)).toBe(true);
  });

  it("works with the ranking by frequency", () => {
    const counts = rows.map((row) => row.cells.size);
    expect(counts).toEqual(counts.toSorted((a, b) => b - a));
  });
});

describe("a column header", () => {
  it("shows the token without its leading space, other white space as symbols", () => {
    expect([" may", "\n", "  ", "", "ing"].map(columnText)).toEqual(["may", "↵", "␣", "…", "ing"]);
  });

  it("is as wide as its token, within limits", () => {
    expect(columnWidth(" report")).toBe(58);
    expect(columnWidth(".")).toBe(36);
    expect(columnWidth("x".repeat(200))).toBe(132);
    expect(columnWidth("日本")).toBeGreaterThan(columnWidth("ab"));
  });
});

describe("visible columns", () => {
  const offsets = columnOffsets(Array.from({ length: 480 }, () => 30));

  it("are all columns of a short text", () => {
    expect(columnOffsets([10, 20])).toEqual([0, 10, 30]);
    expect(visibleColumns(columnOffsets([10, 20]), 0, 5)).toEqual({ from: 0, to: 2 });
  });

  it("are whole chunks around the view", () => {
    expect(visibleColumns(offsets, 0, 900)).toEqual({ from: 0, to: 72 });
    const middle = visibleColumns(offsets, 240 * 30, 270 * 30);
    expect(middle.from).toBeLessThanOrEqual(240 - 24);
    expect(middle.to).toBeGreaterThanOrEqual(270 + 24);
    expect(visibleColumns(offsets, 480 * 30, 500 * 30)).toEqual({ from: 456, to: 480 });
  });
});

const experts = [{ expert: 5, activation: 1.23456, share: 0.5 }];
const response = {
  tokens: [
    { start: true, text: "<s>", experts },
    { start: false, text: " a", experts },
  ],
  experts: { 5: { label: "fifth" } },
} as unknown as RoutingResponse;

describe("a routing as a table", () => {
  it("has one row per token and active expert", () => {
    expect(
      routingTable(
        response,
        [0, 0.25].map((kl) => ({ kl, zeroed_kl: 2 * kl, predictions: [] })),
        false,
      ).rows,
    ).toEqual([["1", " a", "0.2500", "5", "1.2346", "0.5000", "fifth", ""]]);
    const automatic = { label: "letters", balanced_accuracy: 0.9, is_clear: true };
    const other = { ...response, experts: { 5: { label: null, automatic } } } as unknown as RoutingResponse;
    expect(routingTable(other, undefined, false).rows[0]?.slice(6)).toEqual(["letters", "0.90"]);
    expect(routingTable(response, undefined, true).rows.map((row) => row[2])).toEqual(["", ""]);
  });
});

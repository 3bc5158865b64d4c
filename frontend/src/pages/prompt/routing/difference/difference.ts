/** Differences between the routings of two texts, by expert. */

import type { RoutedExpertInfo, RoutedToken, RoutingResponse } from "@/api/types";
import { trustOf } from "@/pages/prompt/expert-name";
import { rarityOf } from "@/pages/prompt/routing/heat-map/heat-rows";
import { MAX_SHARED } from "@/pages/prompt/routing/routing-params";

/** lengths[i][j]: length of the longest common subsequence of `a` from i and `b` from j. */
function commonLengths(a: readonly RoutedToken[], b: readonly RoutedToken[]): readonly Uint16Array[] {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    const row = lengths[i] as Uint16Array;
    const below = lengths[i + 1] as Uint16Array;
    for (let j = b.length - 1; j >= 0; j--) {
      row[j] = a[i]?.id === b[j]?.id ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return lengths;
}

/** Null for no counterpart. */
export interface TokenPair {
  readonly a: RoutedToken | null;
  readonly b: RoutedToken | null;
}

/** The tokens between two matches, one by one; the rest of the longer side has no counterpart. */
const pairUnmatched = (a: readonly RoutedToken[], b: readonly RoutedToken[]) =>
  Array.from({ length: Math.max(a.length, b.length) }, (_, i): TokenPair => ({ a: a[i] ?? null, b: b[i] ?? null }));

/** Pairs in the order of both texts, by their longest common subsequence, without start tokens. */
export function alignRoutings<T extends Pick<RoutingResponse, "tokens">>(first: T, second: T): readonly TokenPair[] {
  const [a, b] = [first, second].map(({ tokens }) => tokens.filter(({ start }) => !start)) as [
    RoutedToken[],
    RoutedToken[],
  ];
  const lengths = commonLengths(a, b);
  const pairs: TokenPair[] = [];
  let [i, j, doneA, doneB] = [0, 0, 0, 0];
  while (i < a.length && j < b.length) {
    if (a[i]?.id === b[j]?.id) {
      pairs.push(...pairUnmatched(a.slice(doneA, i), b.slice(doneB, j)), { a: a[i] ?? null, b: b[j] ?? null });
      [i, j] = [i + 1, j + 1];
      [doneA, doneB] = [i, j];
    } else if ((lengths[i + 1]?.[j] ?? 0) >= (lengths[i]?.[j + 1] ?? 0)) i++;
    else j++;
  }
  return [...pairs, ...pairUnmatched(a.slice(doneA), b.slice(doneB))];
}

export interface DifferenceRow {
  readonly expert: number;
  readonly info: RoutedExpertInfo | undefined;
  /** Summed activations over each text. */
  readonly a: number;
  readonly b: number;
  readonly change: number;
  /** By index of the token pair: activation in the second text minus activation in the first. */
  readonly cells: ReadonlyMap<number, number>;
  /** Largest absolute value of the cells. */
  readonly largest: number;
  /** The largest difference, or that of the sums, times log₂(1 / density): common experts come last. */
  readonly score: number;
}

interface Sums {
  a: number;
  b: number;
  readonly cells: Map<number, number>;
}

function sumByExpert(pairs: readonly TokenPair[]): ReadonlyMap<number, Sums> {
  const sumsByExpert = new Map<number, Sums>();
  for (const [index, pair] of pairs.entries()) {
    for (const side of ["a", "b"] as const) {
      for (const { expert, activation } of pair[side]?.experts ?? []) {
        const sums = sumsByExpert.get(expert) ?? { a: 0, b: 0, cells: new Map<number, number>() };
        sums[side] += activation;
        sums.cells.set(index, (sums.cells.get(index) ?? 0) + (side === "b" ? activation : -activation));
        sumsByExpert.set(expert, sums);
      }
    }
  }
  return sumsByExpert;
}

/** One row per expert that is active in either text, by score. */
export function differenceRows(
  pairs: readonly TokenPair[],
  experts: RoutingResponse["experts"],
  order: "aligned" | "apart",
): readonly DifferenceRow[] {
  const rows = [...sumByExpert(pairs)].map(([expert, { a, b, cells }]): DifferenceRow => {
    const largest = [...cells.values()].reduce((most, cell) => Math.max(most, Math.abs(cell)), 0);
    const rarity = rarityOf(experts[expert]);
    return {
      expert,
      info: experts[expert],
      a,
      b,
      change: b - a,
      cells,
      largest,
      score: rarity * (order === "aligned" ? largest : Math.abs(b - a)),
    };
  });
  return rows.sort((x, y) => y.score - x.score || x.expert - y.expert);
}

/** Index of the first pair of different tokens; nothing before it can differ. */
export const firstDifference = (pairs: readonly TokenPair[]): number =>
  Math.max(
    0,
    pairs.findIndex(({ a, b }) => a?.id !== b?.id),
  );

const textOf = (pairs: readonly TokenPair[], side: "a" | "b") => pairs.map((pair) => pair[side]?.text ?? "").join("");

/** Of the differences of one sign, that with the largest score, or half of it and a clear label. */
function tellingOf(rows: readonly DifferenceRow[], columns: readonly number[], sign: 1 | -1) {
  const found = rows
    .map((row) => {
      const value = sign * Math.max(0, ...columns.map((column) => sign * (row.cells.get(column) ?? 0)));
      return { row, value, score: Math.abs(value) * rarityOf(row.info) };
    })
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score);
  const least = (found[0]?.score ?? 0) / 2;
  return found.find(({ row, score }) => score >= least && trustOf(row.info) > 0) ?? found[0];
}

/** Each stretch of tokens that differ, as text, and the experts that one text activates more, by the largest score. */
export function changedWords(pairs: readonly TokenPair[], rows: readonly DifferenceRow[]) {
  const stretches: number[][] = [];
  pairs.forEach(({ a, b }, index) => {
    if (a?.id === b?.id) return;
    const last = stretches.at(-1);
    if (last?.at(-1) === index - 1) last.push(index);
    else stretches.push([index]);
  });
  const words = stretches.map((columns) => {
    const differing = columns.flatMap((column) => pairs[column] ?? []);
    return {
      a: textOf(differing, "a").trim(),
      b: textOf(differing, "b").trim(),
      told: ([-1, 1] as const)
        .flatMap((sign) => tellingOf(rows, columns, sign) ?? [])
        .toSorted((x, y) => y.score - x.score),
    };
  });
  const size = ({ told: [first] }: (typeof words)[number]) => first?.score ?? 0;
  return words.filter(({ told }) => told.length > 0).toSorted((x, y) => size(y) - size(x));
}

/** The first rows as a map of the pairs, for a snapshot. */
export function sharedDifference(run: string, pairs: readonly TokenPair[], rows: readonly DifferenceRow[]) {
  const map = rows.slice(0, MAX_SHARED).map(({ expert, cells }) => ({
    run,
    cells: [...cells]
      .filter(([column, value]) => column < pairs.length && Number(value.toFixed(2)) !== 0)
      .map(([column, value]) => ({ column, expert, value })),
  }));
  return {
    columns: pairs.map(({ a, b }) => (a?.id === b?.id ? (a?.text ?? "") : `${a?.text ?? "–"} →${b?.text ?? "–"}`)),
    rows: map.filter(({ cells }) => cells.length > 0),
  };
}

/** Differences between the routings of two texts, by expert. */

import type { RoutedExpertInfo, RoutedToken, RoutingResponse } from "@/api/types";
import { rarityOf, weakness } from "@/pages/prompt/routing/heat-map/heat-rows";
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
  const tokensOf = ({ tokens }: T) => tokens.filter(({ start }) => !start);
  const [a, b] = [tokensOf(first), tokensOf(second)];
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

/** Activations of one expert in both texts. */
interface Activations {
  readonly a: number;
  readonly b: number;
}

export interface DifferenceRow extends Activations {
  readonly expert: number;
  readonly info: RoutedExpertInfo | undefined;
  /** By index of the token pair; those of the row itself are sums over each text. */
  readonly cells: ReadonlyMap<number, Activations>;
  /** The token of the largest activation in the text with the larger sum. */
  readonly peak: string;
}

/** Smaller differences in activation are rounding errors. */
const ROUNDING_ERROR = 1e-3;

/** Token pairs by index; null for the sums over whole texts. */
type Part = ReadonlySet<number> | null;

export const changeOf = ({ a, b }: Activations): number => b - a;

const cellsOf = (row: DifferenceRow, part: Part): readonly Activations[] =>
  part === null ? [row] : [...row.cells].flatMap(([index, cell]) => (part.has(index) ? [cell] : []));

/** The largest change in a part, with its sign. */
export const changeAt = (row: DifferenceRow, part: Part): number =>
  cellsOf(row, part)
    .map(changeOf)
    .reduce((x, y) => (Math.abs(y) > Math.abs(x) ? y : x), 0);

/** One row per expert that is active in either text. */
export function differenceRows(
  pairs: readonly TokenPair[],
  experts: RoutingResponse["experts"],
): readonly DifferenceRow[] {
  const byExpert = new Map<number, Map<number, { a: number; b: number }>>();
  for (const [index, pair] of pairs.entries()) {
    for (const side of ["a", "b"] as const) {
      for (const { expert, activation } of pair[side]?.experts ?? []) {
        const cells = byExpert.get(expert) ?? new Map<number, { a: number; b: number }>();
        cells.set(index, { ...(cells.get(index) ?? { a: 0, b: 0 }), [side]: activation });
        byExpert.set(expert, cells);
      }
    }
  }
  return [...byExpert].map(([expert, cells]) => {
    const sum = (side: "a" | "b") => [...cells.values()].reduce((total, cell) => total + cell[side], 0);
    const [a, b] = [sum("a"), sum("b")];
    const side = b > a ? "b" : "a";
    const [peak] = [...cells].reduce((most, one) => (one[1][side] > most[1][side] ? one : most));
    return { expert, info: experts[expert], a, b, cells, peak: pairs[peak]?.[side]?.text ?? "" };
  });
}

/** Of the largest score. Below it, a label does not bring a row forward. */
const MIN_SCORE = 1 / 4;

/**
 * The rows with a change in a part, by its size times log₂(1 / density): common experts come last. Unless `isMixed`, the
 * large ones whose labels are not weak come first.
 */
export function byScore(rows: readonly DifferenceRow[], part: Part, isMixed: boolean) {
  const scored = rows
    .map((row) => ({ row, change: changeAt(row, part) }))
    .filter(({ change }) => Math.abs(change) > ROUNDING_ERROR)
    .map(({ row, change }) => ({ row, change, score: Math.abs(change) * rarityOf(row.info) }));
  const least = MIN_SCORE * Math.max(...scored.map(({ score }) => score));
  return scored
    .map((one) => ({ ...one, isFirst: !isMixed && weakness(one.row) === 0 && one.score >= least }))
    .toSorted((x, y) => Number(y.isFirst) - Number(x.isFirst) || y.score - x.score || x.row.expert - y.row.expert);
}

/** 0 if the same experts are equally active in a part, 1 if no expert is active in both texts. */
export function differingShare(rows: readonly DifferenceRow[], part: Part): number {
  const cells = rows.flatMap((row) => cellsOf(row, part));
  const sum = (choose: (...all: number[]) => number) => cells.reduce((total, { a, b }) => total + choose(a, b), 0);
  return cells.length === 0 ? 0 : 1 - sum(Math.min) / sum(Math.max);
}

export const isChanged = ({ a, b }: TokenPair): boolean => a?.id !== b?.id;

/** Index of the first pair of different tokens; nothing before it can differ. */
export const firstDifference = (pairs: readonly TokenPair[]): number => Math.max(0, pairs.findIndex(isChanged));

/** Least share of equal tokens with which texts are compared token by token. */
const MIN_EQUAL = 1 / 3;

export const isAlike = (pairs: readonly TokenPair[]): boolean =>
  pairs.filter((pair) => !isChanged(pair)).length >= MIN_EQUAL * pairs.length;

const textOf = (pairs: readonly TokenPair[], side: "a" | "b") => pairs.map((pair) => pair[side]?.text ?? "").join("");

/** Each stretch of tokens that differ, as text, and the equal tokens after the first one. */
export function placesOf(pairs: readonly TokenPair[]) {
  const stretches: number[][] = [];
  const equal = new Set<number>();
  pairs.forEach((pair, index) => {
    const last = stretches.at(-1);
    if (!isChanged(pair)) {
      if (last !== undefined) equal.add(index);
    } else if (last?.at(-1) === index - 1) last.push(index);
    else stretches.push([index]);
  });
  const changed = stretches.map((columns) => {
    const differing = columns.flatMap((column) => pairs[column] ?? []);
    return { part: new Set(columns), a: textOf(differing, "a").trim(), b: textOf(differing, "b").trim() };
  });
  return { changed, equal };
}

/** The first two experts of a part in the table's order, and the largest of all if it is neither. */
export function tellingOf(rows: readonly DifferenceRow[], part: Part, isMixed: boolean) {
  const first = byScore(rows, part, isMixed).slice(0, 2);
  const told = first.filter(({ isFirst }, _, [one]) => isFirst === one?.isFirst);
  const largest = byScore(rows, part, true).slice(0, 1);
  return { told, larger: largest.filter(({ row }) => told.every((one) => one.row !== row)) };
}

/** The first rows as a map of the pairs, for a snapshot. */
export function sharedDifference(
  run: string,
  pairs: readonly TokenPair[],
  rows: readonly { readonly row: DifferenceRow }[],
) {
  const map = rows.slice(0, MAX_SHARED).map(({ row: { expert, cells } }) => ({
    run,
    cells: [...cells]
      .map(([column, cell]) => ({ column, expert, value: changeOf(cell) }))
      .filter(({ column, value }) => column < pairs.length && Number(value.toFixed(2)) !== 0),
  }));
  return {
    columns: pairs.map((pair) =>
      isChanged(pair) ? `${pair.a?.text ?? "–"} →${pair.b?.text ?? "–"}` : (pair.a?.text ?? ""),
    ),
    rows: map.filter(({ cells }) => cells.length > 0),
  };
}

/** What one text's routing has more or less of than another's, expert by expert. */

import type { RoutedExpertInfo, RoutedToken, RoutingResponse } from "@/api/types";

import { alignTokens, type Pair } from "./alignment";

export interface DifferenceRow {
  readonly expert: number;
  readonly info: RoutedExpertInfo | undefined;
  /** Summed coefficients over either text. */
  readonly a: number;
  readonly b: number;
  readonly change: number;
  /** By index of the pair: coefficient in the second text minus that in the first, where either has one. */
  readonly cells: ReadonlyMap<number, number>;
  /** Summed sizes of the cells: what the rows are ranked by where tokens are aligned. */
  readonly moved: number;
}

export interface TokenPair {
  readonly a: RoutedToken | null;
  readonly b: RoutedToken | null;
}

type Routed = Pick<RoutingResponse, "tokens" | "experts">;

/** Without start tokens. */
export function pairsOf(a: Routed, b: Routed): readonly TokenPair[] {
  const without = ({ tokens }: Routed) => tokens.filter((token) => !token.start);
  const [textA, textB] = [without(a), without(b)];
  const ids = (tokens: readonly RoutedToken[]) => tokens.map((token) => token.id);
  const token = (tokens: readonly RoutedToken[], index: Pair["a"]) => (index === null ? null : (tokens[index] ?? null));
  return alignTokens(ids(textA), ids(textB)).map((pair) => ({ a: token(textA, pair.a), b: token(textB, pair.b) }));
}

interface Sums {
  a: number;
  b: number;
  readonly cells: Map<number, number>;
}

function sumsOf(pairs: readonly TokenPair[]): ReadonlyMap<number, Sums> {
  const found = new Map<number, Sums>();
  for (const [place, pair] of pairs.entries()) {
    for (const side of ["a", "b"] as const) {
      for (const { expert, coefficient } of pair[side]?.experts ?? []) {
        const sums = found.get(expert) ?? { a: 0, b: 0, cells: new Map<number, number>() };
        sums[side] += coefficient;
        sums.cells.set(place, (sums.cells.get(place) ?? 0) + (side === "b" ? coefficient : -coefficient));
        found.set(expert, sums);
      }
    }
  }
  return found;
}

export type DifferenceOrder = "aligned" | "apart";

/** One row for every expert that is active in either. Aligned: those that move most on a token first; apart: those whose
 *  sums differ most. */
export function differenceRows(
  pairs: readonly TokenPair[],
  experts: RoutingResponse["experts"],
  order: DifferenceOrder,
): readonly DifferenceRow[] {
  const rows = [...sumsOf(pairs)].map(([expert, { a, b, cells }]): DifferenceRow => {
    const moved = [...cells.values()].reduce((sum, cell) => sum + Math.abs(cell), 0);
    return { expert, info: experts[expert], a, b, change: b - a, cells, moved };
  });
  const size = (row: DifferenceRow) => (order === "aligned" ? row.moved : Math.abs(row.change));
  return rows.sort((x, y) => size(y) - size(x) || x.expert - y.expert);
}

/** The largest difference in a cell: where the diverging scale ends. */
export function largestDifference(rows: readonly DifferenceRow[]): number {
  return rows.reduce((most, row) => [...row.cells.values()].reduce((m, cell) => Math.max(m, Math.abs(cell)), most), 0);
}

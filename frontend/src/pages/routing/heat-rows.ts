/** The heat map as numbers: which experts are its rows, in which order, and on which scale. */

import type { PredictedToken, RoutedExpertInfo, RoutedToken, RoutingResponse } from "@/api/types";
import { niceEnd } from "@/lib/nice-end";

export type Ranking = "summed" | "largest" | "often" | "rarest";

export interface HeatCell {
  readonly coefficient: number;
  /** Of the summed norms of what all active experts add on this token. */
  readonly share: number;
  /** Place among the experts active on this token, from 1. */
  readonly rank: number;
  readonly of: number;
}

export interface HeatRow {
  readonly expert: number;
  readonly info: RoutedExpertInfo;
  /** By index of the token. */
  readonly cells: ReadonlyMap<number, HeatCell>;
  readonly sum: number;
  readonly largest: number;
  /** Active on most tokens of any text. */
  readonly isShared: boolean;
}

export interface Column {
  /** Index into the tokens of the answer. */
  readonly position: number;
  readonly token: RoutedToken;
}

/** What is expected after each token, by position; it comes a moment after the routing. */
export type Predicted = readonly PredictedToken[] | undefined;

const UNKNOWN: RoutedExpertInfo = { label: null, automatic: null, usage: null, largest: null, top_tokens: [] };
/** From this usage on an expert says little about any one token. */
const SHARED_USAGE = 0.5;
/** The same, where the run has no index and only this text can tell. */
const SHARED_HERE = 0.9;
const FEWEST_TO_TELL = 5;

export function heatColumns(response: Pick<RoutingResponse, "tokens">, withStart: boolean): readonly Column[] {
  return response.tokens.map((token, position) => ({ position, token })).filter((c) => withStart || !c.token.start);
}

function isShared(info: RoutedExpertInfo, active: number, columns: number): boolean {
  if (info.usage !== null) return info.usage >= SHARED_USAGE;
  return columns >= FEWEST_TO_TELL && active >= SHARED_HERE * columns;
}

function cellsByExpert(columns: readonly Column[]): ReadonlyMap<number, ReadonlyMap<number, HeatCell>> {
  const found = new Map<number, Map<number, HeatCell>>();
  for (const { position, token } of columns) {
    for (const [i, routed] of token.experts.entries()) {
      const cells = found.get(routed.expert) ?? new Map<number, HeatCell>();
      const { coefficient, share } = routed;
      found.set(routed.expert, cells.set(position, { coefficient, share, rank: i + 1, of: token.experts.length }));
    }
  }
  return found;
}

const ORDERS: Readonly<Record<Ranking, (row: HeatRow) => number>> = {
  summed: (row) => -row.sum,
  largest: (row) => -row.largest,
  often: (row) => -row.cells.size,
  rarest: (row) => row.info.usage ?? Infinity,
};

/** One row for every expert that is active on a column, the first in the ranking first; ties go by sum, then id. */
export function heatRows(
  columns: readonly Column[],
  experts: RoutingResponse["experts"],
  ranking: Ranking,
): readonly HeatRow[] {
  const rows = [...cellsByExpert(columns)].map(([expert, cells]): HeatRow => {
    const info = experts[expert] ?? UNKNOWN;
    const coefficients = [...cells.values()].map((cell) => cell.coefficient);
    return {
      expert,
      info,
      cells,
      sum: coefficients.reduce((a, b) => a + b, 0),
      largest: Math.max(...coefficients),
      isShared: isShared(info, cells.size, columns.length),
    };
  });
  const order = ORDERS[ranking];
  const compare = (a: HeatRow, b: HeatRow) => (order(a) === order(b) ? 0 : order(a) - order(b));
  return rows.sort((a, b) => compare(a, b) || b.sum - a.sum || a.expert - b.expert);
}

/** Rows of experts that are active on at most `usage` percent of all tokens; those of unknown usage stay. */
export function withinUsage(rows: readonly HeatRow[], usage: number): readonly HeatRow[] {
  return usage >= 100 ? rows : rows.filter((row) => row.info.usage === null || 100 * row.info.usage <= usage);
}

/** End of the one scale that all rows share. */
export function scaleEnd(rows: readonly HeatRow[]): number {
  return niceEnd(rows.reduce((largest, row) => Math.max(largest, row.largest), 0));
}

/** Decimals of every cell: few enough for the narrowest column. */
export function cellDigits(end: number): number {
  if (end >= 100) return 0;
  return end >= 4 ? 1 : 2;
}

/** `.012`, `1.23`, `12.3`: no wider than the narrowest column. */
export function formatKl(kl: number): string {
  if (kl >= 10) return kl.toFixed(1);
  return kl >= 0.9995 ? kl.toFixed(2) : kl.toFixed(3).replace(/^0/, "");
}

/** What stands in the foot: mean KL over the columns. */
export function meanKl(columns: readonly Column[], predicted: Predicted): string {
  if (predicted === undefined) return "…";
  const sum = columns.reduce((sofar, { position }) => sofar + (predicted[position]?.kl ?? 0), 0);
  return (sum / Math.max(1, columns.length)).toFixed(3);
}

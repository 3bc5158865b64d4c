/** Which expert to show first: named by somebody, else strong, neither rare nor common, on few kinds of token. */

import type { ExpertRow } from "@/api/types";

export const MERIT_USAGE = { min_usage: 0.0005, max_usage: 0.01 } as const;

/** Bits of entropy of a handful of tokens that belong together; 0 would be one and the same token. */
const BEST_ENTROPY = 2.5;
const ENTROPY_SPAN = 4;
const IS_WORD = /\p{L}{2,}/u;

function wordShare(row: ExpertRow): number {
  const tokens = row.top_tokens.slice(0, 8);
  return tokens.length === 0 ? 0 : tokens.filter((token) => IS_WORD.test(token.text)).length / tokens.length;
}

function merit(row: ExpertRow, strongest: number): number {
  const focus = 1 - Math.abs(row.entropy - BEST_ENTROPY) / ENTROPY_SPAN;
  return row.largest / strongest + focus + wordShare(row) + (row.label === null ? 0 : 10);
}

/** The experts, the one most worth seeing first. */
export function byMerit(rows: readonly ExpertRow[]): readonly ExpertRow[] {
  const strongest = Math.max(...rows.map((row) => row.largest), 1e-9);
  return rows.toSorted((a, b) => merit(b, strongest) - merit(a, strongest));
}

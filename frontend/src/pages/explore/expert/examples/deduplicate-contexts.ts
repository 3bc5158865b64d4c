/** Examples with the same text around the peak are shown once, with the number of duplicates. */

import type { Context } from "@/api/types";

/** Number of tokens on either side that must be equal. */
const RADIUS = 8;

export interface Deduplicated {
  readonly contexts: readonly Context[];
  /** Number of duplicates left out. */
  readonly numDuplicates: number;
}

function surroundingTokens(context: Context): string {
  const { position, token_ids } = context;
  return token_ids.slice(Math.max(0, position - RADIUS), position + RADIUS + 1).join(",");
}

/** Whether both are of one sentence, with peaks so close that each shows the other's. */
const overlaps = (one: Context, other: Context) =>
  one.sequence === other.sequence && Math.abs(one.position - other.position) <= RADIUS;

/** The first of each set of duplicates, in order, without those of examples shown `above` and what overlaps with them. */
export function deduplicate(contexts: readonly Context[], above: readonly Context[] = []): Deduplicated {
  const seen = new Set(above.map(surroundingTokens));
  const unique = contexts.filter((context) => {
    const key = surroundingTokens(context);
    if (seen.has(key) || above.some((other) => overlaps(context, other))) return false;
    seen.add(key);
    return true;
  });
  return { contexts: unique, numDuplicates: contexts.length - unique.length };
}

/** Leaves out the examples shown `above` and keeps other duplicates, because in a sample their number is informative. */
export function withoutShown(contexts: readonly Context[], above: readonly Context[]): readonly Context[] {
  const shown = new Set(above.map(surroundingTokens));
  return contexts.filter((context) => !shown.has(surroundingTokens(context)));
}

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

/** The first of each set of duplicates, in order. */
export function deduplicate(contexts: readonly Context[]): Deduplicated {
  const seen = new Set<string>();
  const unique = contexts.filter((context) => {
    const key = surroundingTokens(context);
    if (seen.has(key)) return false;
    seen.add(key);
    return true;
  });
  return { contexts: unique, numDuplicates: contexts.length - unique.length };
}

/** Contexts that read the same around their token are shown once, with how many there are. */

import type { Context } from "@/api/types";

/** Tokens on either side that must be equal. */
const REACH = 8;

export interface Folded {
  readonly contexts: readonly Context[];
  /** How many were left out. */
  readonly left: number;
}

function around(context: Context): string {
  const { position, token_ids } = context;
  return token_ids.slice(Math.max(0, position - REACH), position + REACH + 1).join(",");
}

/** The first of those that read the same, in order. */
export function folded(contexts: readonly Context[]): Folded {
  const seen = new Set<string>();
  const kept = contexts.filter((context) => {
    const key = around(context);
    if (seen.has(key)) return false;
    seen.add(key);
    return true;
  });
  return { contexts: kept, left: contexts.length - kept.length };
}

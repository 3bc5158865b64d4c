/** Examples with the same text around the peak are shown once, with the number of duplicates. */

import type { Example } from "@/api/types";

/** Number of tokens on either side that must be equal. */
const RADIUS = 8;

export interface Deduplicated {
  readonly examples: readonly Example[];
  /** Number of duplicates left out. */
  readonly numDuplicates: number;
}

function surroundingTokens(example: Example): string {
  const { position, token_ids } = example;
  return token_ids.slice(Math.max(0, position - RADIUS), position + RADIUS + 1).join(",");
}

/** Whether both are of one sentence, with peaks so close that each shows the other's. */
const overlaps = (one: Example, other: Example) =>
  one.sequence === other.sequence && Math.abs(one.position - other.position) <= RADIUS;

/** The first of each set of duplicates, in order, without those of examples shown `above` and what overlaps with them. */
export function deduplicate(examples: readonly Example[], above: readonly Example[] = []): Deduplicated {
  const seen = new Set(above.map(surroundingTokens));
  const unique = examples.filter((example) => {
    const key = surroundingTokens(example);
    if (seen.has(key) || above.some((other) => overlaps(example, other))) return false;
    seen.add(key);
    return true;
  });
  return { examples: unique, numDuplicates: examples.length - unique.length };
}

/** Leaves out the examples shown `above` and keeps other duplicates, because in a sample their number is informative. */
export function withoutShown(examples: readonly Example[], above: readonly Example[]): readonly Example[] {
  const shown = new Set(above.map(surroundingTokens));
  return examples.filter((example) => !shown.has(surroundingTokens(example)));
}

/** Matches that come from a common initialisation: experts of one id start alike in runs of one seed. */

import type { MatchedPair, RunComparison } from "@/api/types";

/** A smaller share of pairs with the same id says nothing about the start. */
const MIN_SHARE = 0.05;

export interface SameStart {
  readonly numSame: number;
  /** Expected number of pairs with the same id if matches were random. */
  readonly byChance: number;
  /** The other pairs. */
  readonly rest: readonly MatchedPair[];
}

/** Null if about as few pairs have the same id as by chance. */
export function sameStart({ pairs, other_active: others }: RunComparison): SameStart | null {
  const rest = pairs.filter((pair) => pair.one.expert !== pair.other.expert);
  const numSame = pairs.length - rest.length;
  const byChance = pairs.length / others;
  const isMore = numSame >= Math.max(MIN_SHARE * pairs.length, 10 * byChance);
  return isMore ? { numSame, byChance, rest } : null;
}

export const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

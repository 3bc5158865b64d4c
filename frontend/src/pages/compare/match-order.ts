/** Matched experts in the order and selection that is asked for. */

import type { MatchedPair } from "@/api/types";

import type { CompareParams, MatchSort } from "./compare-params";

const VALUES: Readonly<Record<MatchSort, (pair: MatchedPair) => number>> = {
  cosine: (pair) => pair.cosine,
  usage: (pair) => pair.one.usage,
  other_usage: (pair) => pair.other.usage,
};

/** Equal values stay in the order they came in: the most used first. */
export function orderedPairs(
  pairs: readonly MatchedPair[],
  { sort, order, mutual }: Pick<CompareParams, "sort" | "order" | "mutual">,
): readonly MatchedPair[] {
  const value = VALUES[sort];
  const sign = order === "desc" ? -1 : 1;
  return pairs.filter((pair) => pair.mutual || !mutual).sort((a, b) => sign * (value(a) - value(b)));
}

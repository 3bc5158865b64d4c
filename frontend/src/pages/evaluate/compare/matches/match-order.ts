/** Sorts and filters matched experts. */

import type { MatchedPair } from "@/api/types";
import type { CompareParams, MatchSort } from "@/pages/evaluate/compare/compare-params";

const VALUES: Readonly<Record<MatchSort, (pair: MatchedPair) => number>> = {
  cosine: (pair) => pair.cosine,
  density: (pair) => pair.one.density,
  other_density: (pair) => pair.other.density,
};

/** Ties keep their order, which is by density. */
export function sortPairs(
  pairs: readonly MatchedPair[],
  { sort, order, mutual }: Pick<CompareParams, "sort" | "order" | "mutual">,
): readonly MatchedPair[] {
  const value = VALUES[sort];
  const sign = order === "desc" ? -1 : 1;
  return pairs.filter((pair) => pair.mutual || !mutual).sort((a, b) => sign * (value(a) - value(b)));
}

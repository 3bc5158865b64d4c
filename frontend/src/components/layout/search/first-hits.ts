import type { SearchHit } from "@/api/types";

/** The first, i.e. best, hit of each expert. */
export function firstHitPerExpert(hits: readonly SearchHit[]): readonly SearchHit[] {
  const seen = new Set<number>();
  return hits.filter(({ expert }) => !seen.has(expert) && seen.add(expert));
}

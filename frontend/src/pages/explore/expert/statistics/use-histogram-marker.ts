/** The activation marked in the histogram: the hovered token's, otherwise the locked one's. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { examplesQuery, randomExamplesQuery } from "@/api/queries";
import type { ContextToken } from "@/components/tokens/concordance";
import { CONTEXTS_PER_PAGE } from "@/pages/explore/expert/examples/shown-contexts";
import { RANDOM_GROUP } from "@/pages/explore/expert/expert-params";

/** The example that contains the locked token; `seed` is the random sample's. */
function useLockedContext(run: string, expert: number, lock: ContextToken | null, seed: number) {
  const isInSample = lock?.bin === RANDOM_GROUP;
  const options = examplesQuery(run, expert, isInSample ? 0 : (lock?.bin ?? 0), CONTEXTS_PER_PAGE);
  const stored = useInfiniteQuery({ ...options, enabled: lock !== null && !isInSample });
  const sample = useQuery({ ...randomExamplesQuery(run, expert, seed), enabled: isInSample });
  if (lock === null) return undefined;
  if (isInSample) return sample.data?.examples[lock.rank];
  return stored.data?.pages.flatMap((page) => page.examples).find((candidate) => candidate.rank === lock.rank);
}

export function useHistogramMarker(run: string, expert: number, lock: ContextToken | null, seed: number) {
  const [hovered, setHovered] = useState<number | null>(null);
  const context = useLockedContext(run, expert, lock, seed);
  const locked = context?.active.find(([position]) => position === lock?.position)?.[1] ?? null;
  return { marker: hovered ?? (lock === null ? null : locked), onHover: setHovered };
}

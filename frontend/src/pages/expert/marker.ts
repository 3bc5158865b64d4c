/** The coefficient marked in the histogram: the one under the pointer, else the locked one. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { contextsQuery, randomContextsQuery } from "@/api/queries";
import type { ContextToken } from "@/components/tokens/concordance";

import { AT_RANDOM } from "./expert-params";
import { CONTEXTS_PER_PAGE } from "./shown-contexts";

/** The context of a locked token; `seed` of the contexts at random. */
function useLocked(run: string, expert: number, lock: ContextToken | null, seed: number) {
  const isAtRandom = lock?.interval === AT_RANDOM;
  const options = contextsQuery(run, expert, isAtRandom ? 0 : (lock?.interval ?? 0), CONTEXTS_PER_PAGE);
  const kept = useInfiniteQuery({ ...options, enabled: lock !== null && !isAtRandom });
  const drawn = useQuery({ ...randomContextsQuery(run, expert, seed), enabled: isAtRandom });
  if (lock === null) return undefined;
  if (isAtRandom) return drawn.data?.contexts[lock.rank];
  return kept.data?.pages.flatMap((page) => page.contexts).find((candidate) => candidate.rank === lock.rank);
}

export function useMarker(run: string, expert: number, lock: ContextToken | null, seed: number) {
  const [hovered, setHovered] = useState<number | null>(null);
  const context = useLocked(run, expert, lock, seed);
  const locked = context?.active.find(([position]) => position === lock?.position)?.[1] ?? null;
  return { marker: hovered ?? (lock === null ? null : locked), onHover: setHovered };
}

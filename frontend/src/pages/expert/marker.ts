/** The coefficient marked in the histogram: the one under the pointer, else the locked one. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";

import { contextsQuery } from "@/api/queries";
import type { ContextToken } from "@/components/tokens/concordance";

import { CONTEXTS_PER_PAGE } from "./context-group";

export function useMarker(run: string, expert: number, lock: ContextToken | null) {
  const [hovered, setHovered] = useState<number | null>(null);
  const options = contextsQuery(run, expert, lock?.interval ?? 0, CONTEXTS_PER_PAGE);
  const { data } = useInfiniteQuery({ ...options, enabled: lock !== null });
  const context = data?.pages.flatMap((page) => page.contexts).find((candidate) => candidate.rank === lock?.rank);
  const locked = context?.active.find(([position]) => position === lock?.position)?.[1] ?? null;
  return { marker: hovered ?? (lock === null ? null : locked), onHover: setHovered };
}

/** The most interesting experts of a run, best first. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { type ExpertFilters, expertsQuery } from "@/api/queries";

import { rankExperts, MODERATE_DENSITY } from "./rank-experts";

const CANDIDATES = 200;
const STRONGEST_FIRST: ExpertFilters = { sort: "max_activation", order: "desc" };

export function useBestExperts(run: string) {
  const moderate = useInfiniteQuery(expertsQuery(run, { ...STRONGEST_FIRST, ...MODERATE_DENSITY }, CANDIDATES));
  const candidates = moderate.data?.pages[0]?.experts;
  // A small index may have no expert of moderate density; then any active one is shown.
  const anyQuery = expertsQuery(run, { ...STRONGEST_FIRST, min_density: 1e-9 }, CANDIDATES);
  const any = useInfiniteQuery({ ...anyQuery, enabled: candidates?.length === 0 });
  const experts = useMemo(
    () =>
      rankExperts(
        candidates === undefined || candidates.length > 0 ? (candidates ?? []) : (any.data?.pages[0]?.experts ?? []),
      ),
    [candidates, any.data],
  );
  const isPending = moderate.isPending || (candidates?.length === 0 && any.isPending);
  return { experts, isPending, error: moderate.error ?? any.error };
}

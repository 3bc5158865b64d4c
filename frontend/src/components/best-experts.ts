/** The experts of a run that are most worth seeing, the best first. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { type ExpertFilters, expertsQuery } from "@/api/queries";

import { byMerit, MERIT_USAGE } from "./merit";

const CANDIDATES = 200;
const STRONGEST_FIRST: ExpertFilters = { sort: "largest", order: "desc" };

export function useBestExperts(run: string) {
  const focused = useInfiniteQuery(expertsQuery(run, { ...STRONGEST_FIRST, ...MERIT_USAGE }, CANDIDATES));
  const found = focused.data?.pages[0]?.experts;
  // A small index may have no expert of moderate usage; then any will do.
  const anyQuery = expertsQuery(run, { ...STRONGEST_FIRST, min_usage: 1e-9 }, CANDIDATES);
  const any = useInfiniteQuery({ ...anyQuery, enabled: found?.length === 0 });
  const experts = useMemo(
    () => byMerit(found === undefined || found.length > 0 ? (found ?? []) : (any.data?.pages[0]?.experts ?? [])),
    [found, any.data],
  );
  const isPending = focused.isPending || (found?.length === 0 && any.isPending);
  return { experts, isPending, error: focused.error ?? any.error };
}

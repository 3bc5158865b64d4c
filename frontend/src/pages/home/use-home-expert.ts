/** The expert of the home page: the one in the address, else the one most worth seeing. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { type ExpertFilters, expertsQuery } from "@/api/queries";
import { useShortcut } from "@/components/shortcuts";
import { useUrlState } from "@/url-state";

import { HOME_PARAMS } from "./home-params";
import { byMerit, MERIT_USAGE } from "./merit";

const CANDIDATES = 200;
const STRONGEST_FIRST: ExpertFilters = { sort: "largest", order: "desc" };

export function useHomeExpert(run: string) {
  const [{ expert: asked }, setParams] = useUrlState(HOME_PARAMS);
  const focused = useInfiniteQuery(expertsQuery(run, { ...STRONGEST_FIRST, ...MERIT_USAGE }, CANDIDATES));
  const found = focused.data?.pages[0]?.experts;
  // A small index may have no expert of moderate usage; then any will do.
  const anyQuery = expertsQuery(run, { ...STRONGEST_FIRST, min_usage: 1e-9 }, CANDIDATES);
  const any = useInfiniteQuery({ ...anyQuery, enabled: found?.length === 0 });
  const ranking = useMemo(
    () => byMerit(found === undefined || found.length > 0 ? (found ?? []) : (any.data?.pages[0]?.experts ?? [])),
    [found, any.data],
  );
  const expert = asked ?? ranking[0]?.expert ?? null;
  const another = () => {
    const next = ranking[(ranking.findIndex((row) => row.expert === expert) + 1) % ranking.length];
    if (next !== undefined) setParams({ expert: next.expert, prompt: null, token: null, ask: null }, "push");
  };
  useShortcut("random", another);
  const isWaiting = focused.isPending || (found?.length === 0 && any.isPending);
  return { expert, another, isPending: asked === null && isWaiting, error: focused.error ?? any.error };
}

/** Measured effects of an expert and of its baseline expert. */

import { skipToken, useQuery } from "@tanstack/react-query";

import { ablationQuery } from "@/api/queries";

import { exceedsBaseline } from "./logit-effect";

export function useAblation(run: string, expert: number) {
  const own = useQuery(ablationQuery(run, expert));
  const ablation = own.data?.ablation ?? null;
  const baseline = ablationQuery(run, ablation?.random_expert ?? 0);
  const random = useQuery(ablation === null ? { ...baseline, queryFn: skipToken } : baseline);
  const isSettled = own.data !== undefined && (ablation === null || !random.isPending);
  const randomAblation = ablation === null ? null : (random.data?.ablation ?? null);
  return {
    ablation,
    randomAblation,
    isPending: !isSettled && own.error === null,
    error: own.error,
    /** Null until known. */
    hasLogitEffect: ablation === null || !isSettled ? null : exceedsBaseline(ablation, randomAblation),
  };
}

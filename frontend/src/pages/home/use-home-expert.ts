/** The expert of the home page: the one in the address, else one that a saved session turns up, else the best one. */

import { useQuery } from "@tanstack/react-query";

import { sessionsQuery } from "@/api/queries";
import { useBestExperts } from "@/components/best-experts";
import { useShortcut } from "@/components/shortcuts";
import { useUrlState } from "@/url-state";

import { HOME_PARAMS } from "./home-params";

/** Experts whose turning up shows, as far as anybody kept it; then those that are most worth seeing. */
function useExperts(run: string) {
  const sessions = useQuery(sessionsQuery(run));
  const { experts, isPending, error } = useBestExperts(run);
  const kept = sessions.data?.sessions.flatMap(({ expert }) => (expert === null ? [] : [expert])) ?? [];
  const all = [...new Set([...kept, ...experts.map((row) => row.expert)])];
  return { experts: all, isPending: isPending || sessions.isPending, error };
}

export function useHomeExpert(run: string) {
  const [{ expert: asked }, setParams] = useUrlState(HOME_PARAMS);
  const { experts, isPending, error } = useExperts(run);
  const expert = asked ?? (isPending ? null : (experts[0] ?? null));
  const another = () => {
    const next = experts[(experts.findIndex((one) => one === expert) + 1) % experts.length];
    if (next !== undefined) setParams({ expert: next, prompt: null, token: null, ask: null }, "push");
  };
  useShortcut("random", another);
  return { expert, another, isPending: asked === null && isPending, error };
}

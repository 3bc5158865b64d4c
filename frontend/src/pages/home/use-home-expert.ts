/** The expert of the home page: the one in the address, else one that a saved session turns up, else the best one; and how
 * far it is turned up at first. */

import { useQuery } from "@tanstack/react-query";

import { sessionsQuery } from "@/api/queries";
import { useBestExperts } from "@/components/best-experts";
import { useShortcut } from "@/components/shortcuts";
import { FIRST_STRENGTH } from "@/lib/edits";
import { useUrlState } from "@/url-state";

import { HOME_PARAMS, MAX_STRENGTH } from "./home-params";

/** Experts whose turning up shows, and how far they are turned up, as far as anybody kept it: the newest first. */
function useTurnedUp(run: string) {
  const { data, isPending } = useQuery(sessionsQuery(run));
  const strengths = new Map<number, number>();
  for (const { expert, strength } of data?.sessions ?? []) {
    if (expert !== null && strength !== null && !strengths.has(expert)) strengths.set(expert, strength);
  }
  return { strengths, isPending };
}

export function useHomeExpert(run: string) {
  const [{ expert: asked }, setParams] = useUrlState(HOME_PARAMS);
  const turnedUp = useTurnedUp(run);
  const best = useBestExperts(run);
  const experts = [...new Set([...turnedUp.strengths.keys(), ...best.experts.map((row) => row.expert)])];
  // The strength of the expert in the address comes from the sessions too: a text begun without them would begin twice.
  const isPending = turnedUp.isPending || (asked === null && best.isPending);
  const expert = asked ?? (isPending ? null : (experts[0] ?? null));
  const kept = expert === null ? undefined : turnedUp.strengths.get(expert);
  const another = () => {
    const next = experts[(experts.findIndex((one) => one === expert) + 1) % experts.length];
    if (next !== undefined) setParams({ expert: next, prompt: null, token: null, ask: null, strength: null }, "push");
  };
  useShortcut("random", another);
  return {
    expert,
    strength: Math.min(kept ?? FIRST_STRENGTH.add, MAX_STRENGTH),
    another,
    isPending,
    error: best.error,
  };
}

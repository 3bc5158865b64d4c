/**
 * The expert of the home page: the one in the URL, otherwise one steered in a saved session, otherwise the most
 * interesting one; and its initial strength.
 */

import { useQuery } from "@tanstack/react-query";

import { sessionsQuery } from "@/api/queries";
import { useBestExperts } from "@/hooks/use-best-experts";
import { useShortcut } from "@/hooks/use-shortcut";
import { useUrlState } from "@/hooks/use-url-state";
import { INITIAL_STRENGTH } from "@/lib/edits/edits";

import { HOME_PARAMS, MAX_STRENGTH } from "./home-params";

/** Strengths of experts steered in saved sessions, newest first. */
function useSessionStrengths(run: string) {
  const { data, isPending } = useQuery(sessionsQuery(run));
  const strengths = new Map<number, number>();
  for (const { expert, strength } of data?.sessions ?? []) {
    if (expert !== null && strength !== null && !strengths.has(expert)) strengths.set(expert, strength);
  }
  return { strengths, isPending };
}

export function useHomeExpert(run: string) {
  const [{ expert: urlExpert }, setParams] = useUrlState(HOME_PARAMS);
  const sessions = useSessionStrengths(run);
  const best = useBestExperts(run);
  const experts = [...new Set([...sessions.strengths.keys(), ...best.experts.map((row) => row.expert)])];
  // Also waits for the sessions if the URL names an expert: they provide its strength, and a late one would restart
  // the generation.
  const isPending = sessions.isPending || (urlExpert === null && best.isPending);
  const expert = urlExpert ?? (isPending ? null : (experts[0] ?? null));
  const savedStrength = expert === null ? undefined : sessions.strengths.get(expert);
  const showNext = () => {
    const next = experts[(experts.findIndex((candidate) => candidate === expert) + 1) % experts.length];
    if (next !== undefined)
      setParams({ expert: next, prompt: null, token: null, steering_prompt: null, strength: null }, "push");
  };
  useShortcut("random", showNext);
  return {
    expert,
    strength: Math.min(savedStrength ?? INITIAL_STRENGTH.add, MAX_STRENGTH),
    another: showNext,
    isPending,
    error: best.error,
  };
}

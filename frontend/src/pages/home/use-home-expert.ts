/**
 * The expert of the home page: the one in the URL, otherwise one steered in a saved session, otherwise the most
 * interesting one; its initial strength, and the prompt to continue.
 */

import { useQuery } from "@tanstack/react-query";

import { sessionsQuery } from "@/api/queries";
import { useBestExperts } from "@/hooks/use-best-experts";
import { useShortcut } from "@/hooks/use-shortcut";
import { useUrlState } from "@/hooks/use-url-state";

import { HOME_PARAMS, HOME_STRENGTH, MAX_STRENGTH } from "./home-params";

interface SavedSteering {
  readonly strength: number;
  readonly prompt: string;
}

/** Strength and prompt of each expert that is steered alone in a saved session, newest first. */
function useSavedSteering(run: string) {
  const { data, isPending } = useQuery(sessionsQuery(run));
  const saved = new Map<number, SavedSteering>();
  for (const { expert, strength, prompt } of data?.sessions ?? []) {
    if (expert !== null && strength !== null && !saved.has(expert)) saved.set(expert, { strength, prompt });
  }
  return { saved, isPending };
}

export function useHomeExpert(run: string) {
  const [{ expert: urlExpert }, setParams] = useUrlState(HOME_PARAMS);
  const sessions = useSavedSteering(run);
  const best = useBestExperts(run);
  const experts = [...new Set([...sessions.saved.keys(), ...best.experts.map((row) => row.expert)])];
  // Also waits for the sessions if the URL names an expert: they provide its strength, and a late one would restart
  // the generation.
  const isPending = sessions.isPending || (urlExpert === null && best.isPending);
  const expert = urlExpert ?? (isPending ? null : (experts[0] ?? null));
  const saved = expert === null ? undefined : sessions.saved.get(expert);
  const showNext = () => {
    const next = experts[(experts.findIndex((candidate) => candidate === expert) + 1) % experts.length];
    if (next !== undefined)
      setParams({ expert: next, prompt: null, token: null, steering_prompt: null, strength: null }, "push");
  };
  useShortcut("random", showNext);
  return {
    expert,
    strength: Math.min(saved?.strength ?? HOME_STRENGTH.add, MAX_STRENGTH),
    /** Prompt of the saved session; null without one. */
    savedPrompt: saved?.prompt ?? null,
    another: showNext,
    isPending,
    error: best.error,
  };
}

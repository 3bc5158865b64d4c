/** Default prompts, taken from the expert's own top examples, where it is certain to be active. */

import type { Context } from "@/api/types";
import { continuationPrompt, sentencePrompt, sentenceSpan } from "@/lib/text/prompts";

import type { HomeMode } from "./home-params";

/** Number of examples that are shown and searched for prompts. */
export const HOME_CONTEXTS = 8;

/** Number of tokens in the example's sentence on which the expert is active. */
function activeInSentence(context: Context): number {
  const [from, to] = sentenceSpan(context);
  return context.active.filter(([position]) => position >= from && position < to).length;
}

/** The sentence in which the expert is active most often; ties go to the stronger example. */
export function routingPrompt(contexts: readonly Context[]): string {
  const context = contexts.toSorted((a, b) => activeInSentence(b) - activeInSentence(a))[0];
  return context === undefined ? "" : sentencePrompt(context);
}

/** A prompt unrelated to any expert. */
export const UNRELATED_PROMPT = "This morning I went to the";

/**
 * Default prompt to continue. Adding works on any text and shows most where the expert would be inactive. Scaling
 * only works where the expert is active, so it gets the second example's sentence up to its peak.
 */
export function generationPrompt(contexts: readonly Context[], mode: HomeMode): string {
  if (mode === "add") return contexts.length === 0 ? "" : UNRELATED_PROMPT;
  const context = contexts[1] ?? contexts[0];
  return context === undefined ? "" : continuationPrompt(context);
}

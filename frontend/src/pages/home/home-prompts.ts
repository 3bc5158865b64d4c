/** Prompts to begin with, cut out of the expert's own contexts: there it is certain to be active. */

import type { Context } from "@/api/types";
import { opening, sentence, sentenceSpan } from "@/lib/prompts";

import type { HomeMode } from "./home-params";

/** How many contexts the page shows, and draws its prompts from. */
export const HOME_CONTEXTS = 8;

/** Tokens of its sentence on which the expert is active. */
function activeInSentence(context: Context): number {
  const [from, to] = sentenceSpan(context);
  return context.active.filter(([position]) => position >= from && position < to).length;
}

/** The sentence in which the expert is active most often; of several, that of the strongest context. */
export function routingPrompt(contexts: readonly Context[]): string {
  const context = contexts.toSorted((a, b) => activeInSentence(b) - activeInSentence(a))[0];
  return context === undefined ? "" : sentence(context);
}

/** A beginning that has nothing to do with the expert. */
export const PLAIN_PROMPT = "One day, the little girl went to the";

/**
 * Adding acts on any text, and shows most where the expert would have stayed silent. Scaling acts only where it is
 * active: there, the second context's sentence up to its strongest token.
 */
export function generationPrompt(contexts: readonly Context[], mode: HomeMode): string {
  if (mode === "add") return contexts.length === 0 ? "" : PLAIN_PROMPT;
  const context = contexts[1] ?? contexts[0];
  return context === undefined ? "" : opening(context);
}

/** Prompts to begin with, cut out of the expert's own contexts: there it is certain to be active. */

import type { Context } from "@/api/types";
import { opening, sentence, sentenceSpan } from "@/lib/prompts";

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

/** The second context's sentence up to its strongest token, where the edit shows at once. */
export function generationPrompt(contexts: readonly Context[]): string {
  const context = contexts[1] ?? contexts[0];
  return context === undefined ? "" : opening(context);
}

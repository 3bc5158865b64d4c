/** Prompts to begin with, cut out of the expert's own contexts: there it is certain to be active. */

import type { Context } from "@/api/types";

/** How many contexts the page shows, and draws its prompts from. */
export const HOME_CONTEXTS = 8;

const BEFORE = 16;
const AFTER = 10;
const ENDS_SENTENCE = /[.!?。:;]["'”’)]?\s*$|\n/;

/** First token of the sentence that holds the peak, at most `BEFORE` tokens back. */
function sentenceStart(context: Context): number {
  const earliest = Math.max(0, context.position - BEFORE);
  for (let i = context.position - 1; i >= earliest; i--) {
    if (ENDS_SENTENCE.test(context.tokens[i] ?? "")) return i + 1;
  }
  return wordStart(context, earliest);
}

/** The next token that begins a word, so that a cut does not begin inside one. */
function wordStart(context: Context, from: number): number {
  if (from === 0) return 0;
  const found = context.tokens.findIndex((text, i) => i >= from && i <= context.position && /^\s/.test(text));
  return found === -1 ? context.position : found;
}

function sentenceEnd(context: Context): number {
  const latest = Math.min(context.tokens.length, context.position + 1 + AFTER);
  for (let i = context.position + 1; i < latest; i++) {
    if (ENDS_SENTENCE.test(context.tokens[i] ?? "")) return i + 1;
  }
  return latest;
}

/** The sentence of the strongest context. */
export function routingPrompt(contexts: readonly Context[]): string {
  const context = contexts[0];
  if (context === undefined) return "";
  return context.tokens.slice(sentenceStart(context), sentenceEnd(context)).join("").trim();
}

/** The second context's sentence up to its strongest token, where the edit shows at once. */
export function generationPrompt(contexts: readonly Context[]): string {
  const context = contexts[1] ?? contexts[0];
  if (context === undefined) return "";
  return context.tokens
    .slice(sentenceStart(context), context.position + 1)
    .join("")
    .trimStart();
}

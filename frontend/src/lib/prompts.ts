/** Prompts cut out of contexts. */

import { joinTokens, type TokenSequence } from "./kwic";

function cut(context: TokenSequence, before: number, after: number): string {
  const from = Math.max(0, context.position - before);
  return joinTokens({ tokens: context.tokens.slice(from, context.position + after + 1) }).trim();
}

/** The peak with what stands around it: enough to see where a text goes, and no more than fits on a screen. */
export function excerpt(context: TokenSequence): string {
  return cut(context, 24, 12);
}

/** What stands before the peak and the peak itself: a text to go on from. */
export function opening(context: TokenSequence): string {
  return cut(context, 16, 0);
}

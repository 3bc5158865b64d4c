/** Prompts cut out of contexts, so that they begin and end where a reader would. */

import { joinTokens, type TokenSequence } from "./kwic";

const BEFORE = 16;
const AFTER = 10;
const ENDS_SENTENCE = /[.!?。:;]["'”’)]?\s*$|\n/;
const BEGINS_WORD = /^\s/;
const BEGINS_WITH_LETTER = /^\p{L}/u;
const ENDS_WITH_LETTER = /\p{L}$/u;
/** Where a text begins or ends, as tokenizers write it. */
export const MARKER = /^(?:<\|[^|]*\|>|<\/?s>|<(?:bos|eos|pad)>)$/;

/** Whether a sentence is over with this token. */
const endsSentence = (token: string): boolean => ENDS_SENTENCE.test(token) || MARKER.test(token);

/** First token of the sentence that holds the peak, at most `BEFORE` tokens back. */
function sentenceStart({ tokens, position }: TokenSequence): number {
  const earliest = Math.max(0, position - BEFORE);
  for (let i = position - 1; i >= earliest; i--) {
    if (endsSentence(tokens[i] ?? "")) return i + 1;
  }
  if (earliest === 0) return 0;
  const word = tokens.findIndex((text, i) => i >= earliest && i <= position && BEGINS_WORD.test(text));
  return word === -1 ? position : word;
}

/** After the last token of the sentence, at most `AFTER` tokens on; never inside a word. */
function sentenceEnd({ tokens, position }: TokenSequence): number {
  const latest = Math.min(tokens.length, position + 1 + AFTER);
  for (let i = position; i < latest; i++) {
    if (i > position && MARKER.test(tokens[i] ?? "")) return i;
    if (ENDS_SENTENCE.test(tokens[i] ?? "")) return i + 1;
  }
  for (let i = latest; i > position + 1; i--) {
    if (i === tokens.length || BEGINS_WORD.test(tokens[i] ?? "")) return i;
  }
  return position + 1;
}

/** The sentence around the peak, as positions from the first token to before the last. */
export function sentenceSpan(context: TokenSequence): readonly [number, number] {
  return [sentenceStart(context), sentenceEnd(context)];
}

/** The sentence around the peak: what a routing is worth looking at. */
export function sentence(context: TokenSequence): string {
  return joinTokens({ tokens: context.tokens.slice(...sentenceSpan(context)) }).trim();
}

/** After the last token of the word that holds the peak. */
function wordEnd({ tokens, position }: TokenSequence): number {
  let end = position + 1;
  while (ENDS_WITH_LETTER.test(tokens[end - 1] ?? "") && BEGINS_WITH_LETTER.test(tokens[end] ?? "")) end++;
  return end;
}

/** The sentence up to the peak's word: a text to go on from, where an edit of the expert shows at once. */
export function opening(context: TokenSequence): string {
  return joinTokens({ tokens: context.tokens.slice(sentenceStart(context), wordEnd(context)) }).trimStart();
}

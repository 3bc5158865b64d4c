/** Parts of examples: the tokens left and right of a peak (keyword in context), and prompts cut out at sentences. */

export interface Piece {
  /** Position in the sequence. */
  readonly index: number;
  readonly id: number;
  readonly text: string;
  /** Activation or difference that shades the token; null if there is none. */
  readonly value: number | null;
  /** Rank of the expert among the token's active experts, starting at 1, if known. */
  readonly rank?: number;
}

export interface TokenSequence {
  readonly position: number;
  readonly token_ids: readonly number[];
  readonly tokens: readonly string[];
  /** (position, activation, rank starting at 0 if known). */
  readonly active: readonly (readonly [number, number, number?])[];
}

const withRank = (rank: number | undefined) => (rank === undefined ? {} : { rank: rank + 1 });

export function pieces(example: Omit<TokenSequence, "position">): readonly Piece[] {
  const activeAt = new Map(example.active.map(([position, value, rank]) => [position, { value, rank }]));
  return example.tokens.map((text, index) => ({
    index,
    id: example.token_ids[index] ?? -1,
    text,
    value: activeAt.get(index)?.value ?? null,
    ...withRank(activeAt.get(index)?.rank),
  }));
}

/** As many neighbours as fit into `budget` characters, nearest first; at least one if there is any. */
function takeWithinBudget(candidates: readonly Piece[], budget: number): readonly Piece[] {
  const taken: Piece[] = [];
  let used = 0;
  for (const piece of candidates) {
    if (used >= budget) break;
    taken.push(piece);
    used += piece.text.length;
  }
  return taken;
}

/** The peak with at least `before` and `after` characters around it, as far as the sequence goes. */
export function kwicWindow(example: TokenSequence, before: number, after: number) {
  const all = pieces(example);
  const peak = all[example.position];
  if (peak === undefined) return null;
  return {
    left: takeWithinBudget(all.slice(0, example.position).reverse(), before).toReversed(),
    peak,
    right: takeWithinBudget(all.slice(example.position + 1), after),
  };
}

/** The peak with `around` tokens on either side, in reading order. */
export function snippet(example: TokenSequence, around: number): readonly Piece[] {
  return pieces(example).slice(Math.max(0, example.position - around), example.position + around + 1);
}

export function joinTokens(example: Pick<TokenSequence, "tokens">): string {
  return example.tokens.join("");
}

const BEFORE = 16;
const AFTER = 10;
const ENDS_SENTENCE = /[.!?。:;]["'”’)]?\s*$|\n/;
const BEGINS_WORD = /^\s/;
const BEGINS_WITH_LETTER = /^\p{L}/u;
const ENDS_WITH_LETTER = /\p{L}$/u;
/** Special tokens that mark the beginning or end of a text. */
export const SPECIAL_TOKEN = /^(?:<\|[^|]*\|>|<\/?s>|<(?:bos|eos|pad)>)$/;

const endsSentence = (token: string): boolean => ENDS_SENTENCE.test(token) || SPECIAL_TOKEN.test(token);

/** First token of the sentence around the peak, at most `BEFORE` tokens back. */
function sentenceStart({ tokens, position }: TokenSequence): number {
  const earliest = Math.max(0, position - BEFORE);
  for (let i = position - 1; i >= earliest; i--) {
    if (endsSentence(tokens[i] ?? "")) return i + 1;
  }
  if (earliest === 0) return 0;
  const word = tokens.findIndex((text, i) => i >= earliest && i <= position && BEGINS_WORD.test(text));
  return word === -1 ? position : word;
}

/** End of the sentence around the peak (exclusive), at most `AFTER` tokens on and never inside a word. */
function sentenceEnd({ tokens, position }: TokenSequence): number {
  const latest = Math.min(tokens.length, position + 1 + AFTER);
  for (let i = position; i < latest; i++) {
    if (i > position && SPECIAL_TOKEN.test(tokens[i] ?? "")) return i;
    if (ENDS_SENTENCE.test(tokens[i] ?? "")) return i + 1;
  }
  for (let i = latest; i > position + 1; i--) {
    if (i === tokens.length || BEGINS_WORD.test(tokens[i] ?? "")) return i;
  }
  return position + 1;
}

/** The sentence around the peak, as a prompt for routing. */
export function sentencePrompt(example: TokenSequence): string {
  return joinTokens({ tokens: example.tokens.slice(sentenceStart(example), sentenceEnd(example)) }).trim();
}

/** End (exclusive) of the word that contains the peak. */
function wordEnd({ tokens, position }: TokenSequence): number {
  let end = position + 1;
  while (ENDS_WITH_LETTER.test(tokens[end - 1] ?? "") && BEGINS_WITH_LETTER.test(tokens[end] ?? "")) end++;
  return end;
}

/**
 * The sentence up to and including the peak's word, as a prompt to continue. An edit of the expert takes effect
 * immediately.
 */
export function continuationPrompt(example: TokenSequence): string {
  return joinTokens({ tokens: example.tokens.slice(sentenceStart(example), wordEnd(example)) }).trimStart();
}

/** The last message of a chat to the model; empty without one. */
export function lastMessage(turns: readonly { readonly role: string; readonly text: string }[]): string {
  return turns.findLast(({ role }) => role === "user")?.text ?? "";
}

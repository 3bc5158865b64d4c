/** Keyword in context (KWIC): the tokens to show left and right of an example's peak. */

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

interface KwicWindow {
  readonly left: readonly Piece[];
  readonly peak: Piece;
  readonly right: readonly Piece[];
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
export function kwicWindow(example: TokenSequence, before: number, after: number): KwicWindow | null {
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

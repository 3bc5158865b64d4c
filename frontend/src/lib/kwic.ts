/** Windows on a context: which tokens are drawn left and right of the one it is shown for. */

export interface Piece {
  /** Position in the sequence. */
  readonly index: number;
  readonly id: number;
  readonly text: string;
  /** Coefficient (or difference) that shades it; null where there is none. */
  readonly value: number | null;
  /** Place of the expert among those active on the token, from 1, where it is known. */
  readonly rank?: number;
}

export interface TokenSequence {
  readonly position: number;
  readonly token_ids: readonly number[];
  readonly tokens: readonly string[];
  /** (position, coefficient), and the rank from 0 where it is known. */
  readonly active: readonly (readonly [number, number, number?])[];
}

export interface KwicWindow {
  readonly left: readonly Piece[];
  readonly peak: Piece;
  readonly right: readonly Piece[];
}

const withRank = (rank: number | undefined) => (rank === undefined ? {} : { rank: rank + 1 });

export function pieces(context: Omit<TokenSequence, "position">): readonly Piece[] {
  const found = new Map(context.active.map(([position, value, rank]) => [position, { value, rank }]));
  return context.tokens.map((text, index) => ({
    index,
    id: context.token_ids[index] ?? -1,
    text,
    value: found.get(index)?.value ?? null,
    ...withRank(found.get(index)?.rank),
  }));
}

/** As many neighbours as fit in `budget` characters, nearest first; at least one where there is any. */
function within(candidates: readonly Piece[], budget: number): readonly Piece[] {
  const kept: Piece[] = [];
  let used = 0;
  for (const piece of candidates) {
    if (used >= budget) break;
    kept.push(piece);
    used += piece.text.length;
  }
  return kept;
}

/** The peak with at least `before` and `after` characters around it, where the sequence has them. */
export function kwicWindow(context: TokenSequence, before: number, after: number): KwicWindow | null {
  const all = pieces(context);
  const peak = all[context.position];
  if (peak === undefined) return null;
  return {
    left: within(all.slice(0, context.position).reverse(), before).toReversed(),
    peak,
    right: within(all.slice(context.position + 1), after),
  };
}

/** The peak with `around` tokens on either side, in reading order. */
export function snippet(context: TokenSequence, around: number): readonly Piece[] {
  return pieces(context).slice(Math.max(0, context.position - around), context.position + around + 1);
}

export function joinTokens(context: Pick<TokenSequence, "tokens">): string {
  return context.tokens.join("");
}

/** A routed prompt from the perspective of one expert. */

import type { RoutedToken } from "@/api/types";
import type { Piece } from "@/lib/text/kwic";

export function coefficientOf(token: RoutedToken, expert: number): number | null {
  return token.experts.find((routed) => routed.expert === expert)?.coefficient ?? null;
}

/** The tokens with this expert's activation, without the start token that the tokenizer adds. */
export function promptPieces(tokens: readonly RoutedToken[], expert: number): readonly Piece[] {
  return tokens
    .map((token, index) => ({ index, id: token.id, text: token.text, value: coefficientOf(token, expert), token }))
    .filter((piece) => !piece.token.start && piece.text !== "")
    .map(({ index, id, text, value }) => ({ index, id, text, value }));
}

/** Groups of tokens that must not be broken across lines: each group begins at white space. */
export function wordGroups(pieces: readonly Piece[]): readonly (readonly Piece[])[] {
  const groups: Piece[][] = [];
  for (const piece of pieces) {
    const last = groups.at(-1);
    if (last === undefined || /^\s/.test(piece.text)) groups.push([piece]);
    else last.push(piece);
  }
  return groups;
}

/** Token with the expert's strongest activation; the first token if it is inactive everywhere. */
export function strongestToken(tokens: readonly RoutedToken[], expert: number): number | null {
  const pieces = promptPieces(tokens, expert);
  const best = pieces.toSorted((a, b) => (b.value ?? -1) - (a.value ?? -1))[0];
  return best?.index ?? null;
}

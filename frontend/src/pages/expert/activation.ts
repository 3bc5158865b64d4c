/** One expert in the routing of a text: coefficient and rank on each token, and where it is strongest. */

import type { RoutingResponse } from "@/api/types";
import type { Piece } from "@/lib/kwic";

export interface Activation {
  readonly pieces: readonly Piece[];
  /** Position of the largest coefficient; null where the expert is silent. */
  readonly peak: number | null;
  /** Place among the experts active on a token, from 1, and how many there are. */
  readonly ranks: ReadonlyMap<number, readonly [number, number]>;
}

/** The start token that the server puts in front is left out. */
export function activationOf(response: Pick<RoutingResponse, "tokens">, expert: number): Activation {
  const ranks = new Map<number, readonly [number, number]>();
  const pieces = response.tokens.flatMap((token, index) => {
    if (token.start) return [];
    const place = token.experts.findIndex((active) => active.expert === expert);
    if (place >= 0) ranks.set(index, [place + 1, token.experts.length]);
    return [{ index, id: token.id, text: token.text, value: token.experts[place]?.coefficient ?? null }];
  });
  const strongest = pieces.reduce<Piece | null>(
    (best, piece) => (piece.value !== null && piece.value > (best?.value ?? 0) ? piece : best),
    null,
  );
  return { pieces, peak: strongest?.index ?? null, ranks };
}

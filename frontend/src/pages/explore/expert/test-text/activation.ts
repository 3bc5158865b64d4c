/** One expert in the routing of a text: activation and rank on each token, and the strongest token. */

import type { RoutingResponse } from "@/api/types";
import type { Piece } from "@/lib/text/kwic";

export interface Activation {
  readonly pieces: readonly Piece[];
  /** Position of the strongest activation; null if the expert is inactive on all tokens. */
  readonly peak: number | null;
  /** Rank among the active experts of a token, starting at 1, and their number. */
  readonly ranks: ReadonlyMap<number, readonly [number, number]>;
}

/** Leaves out the start token that the server adds. */
export function findActivation(response: Pick<RoutingResponse, "tokens">, expert: number): Activation {
  const ranks = new Map<number, readonly [number, number]>();
  const pieces = response.tokens.flatMap((token, index) => {
    if (token.start) return [];
    const rank = token.experts.findIndex((active) => active.expert === expert);
    if (rank >= 0) ranks.set(index, [rank + 1, token.experts.length]);
    return [{ index, id: token.id, text: token.text, value: token.experts[rank]?.activation ?? null }];
  });
  const strongest = pieces.reduce<Piece | null>(
    (best, piece) => (piece.value !== null && piece.value > (best?.value ?? 0) ? piece : best),
    null,
  );
  return { pieces, peak: strongest?.index ?? null, ranks };
}

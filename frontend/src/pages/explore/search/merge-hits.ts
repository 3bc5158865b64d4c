/** Hits of several layers as one list, the best match first. */

import type { SearchHit } from "@/api/types";
import { firstHitPerExpert } from "@/components/layout/search/first-hits";

export interface LayerHits {
  readonly run: string;
  readonly layer: number;
  readonly hits: readonly SearchHit[];
}

export interface RankedHit extends Omit<LayerHits, "hits"> {
  readonly hit: SearchHit;
}

/** Below this share of an expert's tokens, a top token says little about it. */
const LARGE_SHARE = 0.05;

/** Numbers and clear labels first, then frequent tokens, related words, weak labels, and last what is near an example. */
function rank({ matched, label, automatic, token_share: share }: SearchHit): number {
  if (matched === "id") return 0;
  if (matched === "label") return label !== null ? 1 : automatic?.is_clear === true ? 2 : 5;
  if (matched === "example") return 6;
  return matched === "token" && (share ?? 0) >= LARGE_SHARE ? 3 : 4;
}

/** Ranks that no hit which arrives later comes before. */
export const isFirst = (hit: SearchHit) => rank(hit) < 4;

const quality = ({ matched, token_share: share, relation, automatic }: SearchHit) =>
  (matched === "label" ? automatic?.balanced_accuracy : (relation ?? share)) ?? 0;

/** Of equal rank, the closer relation, larger share of tokens or better label comes first, else the layer's own order. */
export function mergeHits(layers: readonly LayerHits[]): readonly RankedHit[] {
  return layers
    .flatMap(({ hits, ...layer }) =>
      firstHitPerExpert(hits.toSorted((a, b) => rank(a) - rank(b))).map((hit, place) => ({ ...layer, hit, place })),
    )
    .sort((a, b) => rank(a.hit) - rank(b.hit) || quality(b.hit) - quality(a.hit) || a.place - b.place);
}

/** Whether an expert's direct logit effect says more than that of a random expert. */

import type { Ablation } from "@/api/types";

/** Half of all experts exceed another one of the same density; about one in seven does so by this factor. */
const FACTOR = 2;

export function largestEffect({ promoted }: Pick<Ablation, "promoted">): number {
  return Math.max(0, ...promoted.map((token) => token.change));
}

/** `random`: the baseline expert's measurement, null if it has none. */
export function exceedsBaseline(own: Pick<Ablation, "promoted">, random: Pick<Ablation, "promoted"> | null): boolean {
  return random === null || largestEffect(own) >= FACTOR * largestEffect(random);
}

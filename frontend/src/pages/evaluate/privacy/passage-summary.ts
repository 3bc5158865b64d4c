/** Means over the scored predictions of one passage, before and after. */

import type { TokenConfidence } from "@/api/types";

export interface PassageSummary {
  readonly predictions: number;
  /** Mean probability of the actual token. */
  readonly trueToken: readonly [before: number, after: number];
  /** Mean largest probability minus 1/V. */
  readonly distance: readonly [before: number, after: number];
}

type Stage = TokenConfidence["before"];

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Null if the passage has no scored prediction. The first `skipped` ones are not scored. */
export function passageSummary(
  tokens: readonly TokenConfidence[],
  skipped: number,
  vocabulary: number,
): PassageSummary | null {
  const scored = tokens.slice(skipped);
  if (scored.length === 0) return null;
  const pair = (value: (stage: Stage) => number) =>
    [mean(scored.map(({ before }) => value(before))), mean(scored.map(({ after }) => value(after)))] as const;
  return {
    predictions: scored.length,
    trueToken: pair(({ probability }) => probability),
    distance: pair(({ likely_probability: largest }) => Math.max(0, largest - 1 / vocabulary)),
  };
}

export const passageText = (tokens: readonly TokenConfidence[]) => tokens.map(({ text }) => text).join("");

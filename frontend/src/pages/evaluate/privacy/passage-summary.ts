/** Mean over the scored predictions of one passage, before and after. */

import type { TokenConfidence } from "@/api/types";

export interface PassageSummary {
  readonly predictions: number;
  readonly before: number;
  readonly after: number;
}

type Stage = TokenConfidence["before"];

/** The measure that tokens are shaded by. */
export type ShadeBy = "true-token" | "entropy";
export const shadeValue = ({ probability, entropy }: Stage, by: ShadeBy) => (by === "entropy" ? entropy : probability);

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Null if the passage has no scored prediction. The first `skipped` ones are not scored. */
export function passageSummary(
  tokens: readonly TokenConfidence[],
  skipped: number,
  by: ShadeBy,
): PassageSummary | null {
  const scored = tokens.slice(skipped);
  if (scored.length === 0) return null;
  return {
    predictions: scored.length,
    before: mean(scored.map(({ before }) => shadeValue(before, by))),
    after: mean(scored.map(({ after }) => shadeValue(after, by))),
  };
}

export const passageText = (tokens: readonly TokenConfidence[]) => tokens.map(({ text }) => text).join("");

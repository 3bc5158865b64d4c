/** Evaluations of two runs that can stand beside each other: those on the same text. */

import type { EvaluationSummary, Fact } from "@/api/types";

export interface CommonEvaluation {
  readonly one: EvaluationSummary;
  readonly other: EvaluationSummary;
}

/** The newest of the first run that the other has too, on as many tokens of the same text; null where there is none. */
export function commonEvaluation(
  ones: readonly EvaluationSummary[],
  others: readonly EvaluationSummary[],
): CommonEvaluation | null {
  for (const one of ones) {
    const other = others.find(({ text, tokens }) => text === one.text && tokens === one.tokens);
    if (other !== undefined) return { one, other };
  }
  return null;
}

export interface FactPair {
  readonly name: string;
  readonly one: Fact;
  readonly other: Fact;
}

/** Figures that both have, in the order of the first. */
export function factPairs(ones: readonly Fact[], others: readonly Fact[]): readonly FactPair[] {
  return ones.flatMap((one) => {
    const other = others.find(({ name }) => name === one.name);
    return other === undefined ? [] : [{ name: one.name, one, other }];
  });
}

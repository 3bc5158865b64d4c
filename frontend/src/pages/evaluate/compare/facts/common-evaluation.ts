/** Evaluations of two runs that can be compared: those on the same text. */

import type { EvaluationSummary, Fact } from "@/api/types";

export interface CommonEvaluation {
  readonly one: EvaluationSummary;
  readonly other: EvaluationSummary;
}

/**
 * The first run's newest evaluation that the other run also has, on the same text and number of tokens; null if none.
 */
export function commonEvaluation(
  ones: readonly EvaluationSummary[],
  others: readonly EvaluationSummary[],
): CommonEvaluation | null {
  for (const evaluation of ones) {
    const other = others.find(({ text, tokens }) => text === evaluation.text && tokens === evaluation.tokens);
    if (other !== undefined) return { one: evaluation, other };
  }
  return null;
}

export interface FactPair {
  readonly name: string;
  readonly one: Fact;
  readonly other: Fact;
}

/** Metrics that both evaluations have, in the order of the first. */
export function factPairs(ones: readonly Fact[], others: readonly Fact[]): readonly FactPair[] {
  return ones.flatMap((one) => {
    const other = others.find(({ name }) => name === one.name);
    return other === undefined ? [] : [{ name: one.name, one, other }];
  });
}

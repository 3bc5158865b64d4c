/** The latest evaluation on each text other than the first evaluation's, which is the newest overall. */

import type { EvaluationSummary } from "@/api/types";

export function evaluationsOnOtherTexts(evaluations: readonly EvaluationSummary[]): readonly EvaluationSummary[] {
  const newestByText = new Map<string, EvaluationSummary>();
  for (const evaluation of evaluations)
    if (!newestByText.has(evaluation.text)) newestByText.set(evaluation.text, evaluation);
  return [...newestByText.values()].slice(1);
}

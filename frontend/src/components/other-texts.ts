/** Evaluations of one run on several texts. */

import type { EvaluationSummary } from "@/api/types";

/** Evaluations come newest first; of each text but the first's the first counts. */
export function onOtherTexts(evaluations: readonly EvaluationSummary[]): readonly EvaluationSummary[] {
  const firsts = new Map<string, EvaluationSummary>();
  for (const one of evaluations) if (!firsts.has(one.text)) firsts.set(one.text, one);
  return [...firsts.values()].slice(1);
}

/** Whether two runs were trained under equal conditions. */

import type { RunDetail } from "@/api/types";
import { formatCompact, formatCount } from "@/lib/text/format";

type Run = RunDetail["run"];

/** Parameters and tokens within this ratio count as equal. */
export const TOLERANCE = 0.01;
export const isClose = (one: number, other: number) => Math.abs(one - other) <= TOLERANCE * Math.max(one, other);

interface Condition {
  readonly name: string;
  readonly isEqual: (one: Run, other: Run) => boolean;
  readonly text: (run: Run) => string;
}

const CONDITIONS: readonly Condition[] = [
  { name: "layer", isEqual: (a, b) => a.layer === b.layer, text: (run) => `layer ${run.layer}` },
  {
    name: "training tokens",
    isEqual: (a, b) => isClose(a.trained_tokens, b.trained_tokens),
    text: (run) => `${formatCompact(run.trained_tokens)} training tokens`,
  },
  {
    name: "parameters",
    isEqual: (a, b) => isClose(a.parameters, b.parameters),
    text: (run) => `${formatCount(run.parameters)} parameters`,
  },
  { name: "K", isEqual: (a, b) => a.k === b.k, text: (run) => `K ${run.k}` },
];

/** Differences that make a comparison unfair, e.g. `5 M against 1.2 M training tokens`. */
export function unfairDifferences(one: Run, other: Run): readonly string[] {
  return CONDITIONS.filter(({ isEqual }) => !isEqual(one, other)).map(
    ({ text }) => `${text(one)} against ${text(other)}`,
  );
}

/** One sentence on the conditions of both runs. */
export function fairness(one: Run, other: Run): string {
  const differences = unfairDifferences(one, other);
  if (differences.length > 0) return `Not a fair comparison: ${differences.join("; ")}.`;
  return `Equal conditions: ${CONDITIONS.map(({ text }) => text(one)).join(", ")}, each within ${100 * TOLERANCE} %.`;
}

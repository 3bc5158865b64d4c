/** What a comparison of two runs says: whether it is fair, and which run predicts better. */

import type { EvaluationSummary, Fact, RunDetail } from "@/api/types";
import { shortSource } from "@/components/runs/run-labels";
import { formatCompact, formatCount, formatFixed, formatSigned } from "@/lib/text/format";

import type { CommonEvaluation } from "./common-evaluation";

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

const LOSS_INCREASE = "Loss increase";
const lossIncrease = ({ faithfulness }: EvaluationSummary) =>
  estimate(faithfulness.find(({ name }) => name === LOSS_INCREASE));

interface Estimate {
  readonly value: number;
  readonly low: number;
  readonly high: number;
}

/** Null if the metric or its interval is unknown. */
function estimate(fact: Fact | undefined): Estimate | null {
  if (fact?.value == null || fact.low == null || fact.high == null) return null;
  return { value: fact.value, low: fact.low, high: fact.high };
}

const describe = ({ value, low, high }: Estimate) =>
  `${formatFixed(value, 4)} (${formatFixed(low, 4)} to ${formatFixed(high, 4)})`;

/**
 * Which run predicts better on the same text, with 95 % intervals; null if unknown.
 *
 * @param difference - loss increase of the first run minus that of the other, paired by sequence
 */
export function evaluationVerdict({ one, other }: CommonEvaluation, difference: Estimate): string | null {
  const [first, second] = [lossIncrease(one), lossIncrease(other)];
  if (first === null || second === null) return null;
  const { value, low, high } = difference;
  const better = value <= 0 ? one.run : other.run;
  const headline = low > 0 || high < 0 ? `${better} predicts better` : "No clear difference";
  const signed = [value, low, high].map((number) => formatSigned(number, 4));
  return (
    `${headline}: the loss increase of ${one.run} minus that of ${other.run} is ${signed[0]} nats (${signed[1]} to ${signed[2]}). ` +
    `They are ${describe(first)} and ${describe(second)}. ` +
    `Sample: ${formatCount(one.tokens)} tokens of ${shortSource(one.text)}; the difference is paired by sequence.`
  );
}

/** Which of two runs each metric favours, and whether clearly. */

import type { Fact, LossDifference } from "@/api/types";
import { CONTINUATIONS } from "@/components/runs/facts";

import type { FactPair } from "./common-evaluation";

export type Side = "one" | "other";

export interface Favour {
  readonly side: Side;
  /** True if the paired difference excludes zero, or, of metrics without one, if the intervals do not overlap. */
  readonly isClear: boolean;
  /** The first run minus the other; minus the control, where the metric has one. */
  readonly difference: number;
}

/** Metrics of the loss, which has a paired difference. Ablating the MLP costs both runs the same. */
const OF_THE_LOSS = ["Loss increase", "Loss recovered vs zero ablation", "Loss recovered vs mean ablation"];
const LOWER_IS_BETTER = ["Loss increase", "KL divergence", "Normalised MSE", "MSE as in the paper's code"];
const HIGHER_IS_BETTER = ["Top-1 agreement", "Variance explained"];

export const isOfTheLoss = ({ name }: FactPair) => OF_THE_LOSS.includes(name);
const hasInterval = ({ low, high }: Fact) => low != null && high != null && low < high;
const halfWidth = ({ low, high }: Fact) => ((high ?? 0) - (low ?? 0)) / 2;

/** The baseline of a metric: `Jacobian control, data` of `Jacobian agreement, data`. */
export const controlOf = ({ name }: FactPair, pairs: readonly FactPair[]) =>
  pairs.find((pair) => name.includes(" agreement") && pair.name === name.replace(" agreement", " control"));

/** Positive if a higher value of the metric is better, 0 if neither is. */
function direction(pair: FactPair, pairs: readonly FactPair[]): number {
  if (LOWER_IS_BETTER.includes(pair.name)) return -1;
  const isHigherBetter =
    isOfTheLoss(pair) ||
    HIGHER_IS_BETTER.includes(pair.name) ||
    pair.one.group === CONTINUATIONS ||
    controlOf(pair, pairs) !== undefined;
  return isHigherBetter ? 1 : 0;
}

/** The values above their controls, where there are any; the half-widths of the intervals are added in quadrature. */
export function aboveControl(pair: FactPair, pairs: readonly FactPair[]): FactPair {
  const control = controlOf(pair, pairs);
  if (control === undefined) return pair;
  const above = (side: Side): Fact => {
    const value = (pair[side].value ?? 0) - (control[side].value ?? 0);
    const error = Math.hypot(halfWidth(pair[side]), halfWidth(control[side]));
    return { ...pair[side], value, low: value - error, high: value + error };
  };
  return { name: pair.name, one: above("one"), other: above("other") };
}

const isApart = ({ one, other }: FactPair) => (one.low ?? 0) > (other.high ?? 0) || (other.low ?? 0) > (one.high ?? 0);

/** Null for metrics that are no measure of quality, such as routing shares and controls, and for equal values. */
export function favour(pair: FactPair, pairs: readonly FactPair[], loss: LossDifference | null): Favour | null {
  const judged = aboveControl(pair, pairs);
  if (isOfTheLoss(pair) ? loss === null : !hasInterval(judged.one) || !hasInterval(judged.other)) return null;
  const difference = (judged.one.value ?? 0) - (judged.other.value ?? 0);
  const advantage = direction(pair, pairs) * difference;
  const isClear = isOfTheLoss(pair) && loss !== null ? loss.low > 0 || loss.high < 0 : isApart(judged);
  return advantage === 0 ? null : { side: advantage > 0 ? "one" : "other", isClear, difference };
}

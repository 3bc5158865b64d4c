/** Which of two runs each metric favours, and whether clearly. */

import type { Fact, LossDifference } from "@/api/types";
import { CONTINUATIONS } from "@/components/runs/facts";

import type { FactPair } from "./common-evaluation";

export interface Favour {
  readonly side: "one" | "other";
  /** True if the intervals do not overlap, or that of the paired difference excludes zero. */
  readonly isClear: boolean;
}

/** Metrics of the loss, which has a paired difference. Ablating the MLP costs both runs the same. */
const OF_THE_LOSS = ["Loss increase", "Loss recovered vs zero ablation", "Loss recovered vs mean ablation"];
const LOWER_IS_BETTER = ["KL divergence", "Normalised MSE", "MSE as in the paper's code"];
const HIGHER_IS_BETTER = ["Top-1 agreement", "Variance explained"];

export const isOfTheLoss = ({ name }: FactPair) => OF_THE_LOSS.includes(name);
const hasInterval = ({ low, high }: Fact) => low != null && high != null && low < high;
const halfWidth = ({ low, high }: Fact) => ((high ?? 0) - (low ?? 0)) / 2;

/** The baseline of a metric: `Jacobian control, data` of `Jacobian agreement, data`. */
export const controlOf = ({ name }: FactPair, pairs: readonly FactPair[]) =>
  pairs.find((pair) => name.includes(" agreement") && pair.name === name.replace(" agreement", " control"));

/** Positive if a higher value of the metric is better, 0 if neither is. */
function direction({ name, one }: FactPair): number {
  if (LOWER_IS_BETTER.includes(name)) return -1;
  return HIGHER_IS_BETTER.includes(name) || one.group === CONTINUATIONS ? 1 : 0;
}

const towards = (advantage: number, isClear: boolean): Favour | null =>
  advantage === 0 ? null : { side: advantage > 0 ? "one" : "other", isClear };

/** A metric counts only as far as it exceeds its control; the four half-widths are added in quadrature. */
function aboveControl(pair: FactPair, control: FactPair): Favour | null {
  const above = (side: "one" | "other") => (pair[side].value ?? 0) - (control[side].value ?? 0);
  const error = Math.hypot(...[pair.one, pair.other, control.one, control.other].map(halfWidth));
  const advantage = above("one") - above("other");
  return towards(advantage, Math.abs(advantage) > error);
}

/** Null for metrics that are no measure of quality, such as routing shares and controls. */
export function favour(pair: FactPair, pairs: readonly FactPair[], loss: LossDifference | null): Favour | null {
  if (isOfTheLoss(pair)) return loss && towards(-loss.value, loss.low > 0 || loss.high < 0);
  const control = controlOf(pair, pairs);
  if (control !== undefined) return aboveControl(pair, control);
  const { one, other } = pair;
  if (!hasInterval(one) || !hasInterval(other)) return null;
  const isApart = (one.low ?? 0) > (other.high ?? 0) || (other.low ?? 0) > (one.high ?? 0);
  return towards(direction(pair) * ((one.value ?? 0) - (other.value ?? 0)), isApart);
}

/** The verdict of a comparison: on which metrics each run is better, and which are undecided. */

import type { LossDifference } from "@/api/types";
import { CONTINUATIONS } from "@/components/runs/facts";

import { type CommonEvaluation, type FactPair, factPairs } from "./common-evaluation";
import { type Favour, favour, isOfTheLoss } from "./favours";
import { interpretabilityFavours, type Measured } from "./interpretability";

/** The continuations of all lengths have one name; no name has a comma; what is judged above its control says so. */
function nameOf({ name, one }: FactPair): string {
  if (one.group === CONTINUATIONS) return "Equal continuations";
  return name.replace(/, (.*)/, " ($1)") + (name.startsWith("Jacobian") ? " above its control" : "");
}

/** The name within a sentence: `KL divergence`, but `loss increase`. */
const inSentence = (name: string) =>
  /^[A-Z][a-z-]/.test(name) && !name.startsWith("Jacobian") ? name.charAt(0).toLowerCase() + name.slice(1) : name;

/** The names of metrics once each, in their order. */
const listNames = (names: readonly string[]) => [...new Set(names.map(inSentence))].join(", ");

function metricFavours({ one, other }: CommonEvaluation, loss: LossDifference | null) {
  const pairs = factPairs(one.faithfulness, other.faithfulness);
  return pairs
    .filter((pair) => pair.name === "Loss increase" || !isOfTheLoss(pair))
    .map((pair) => [nameOf(pair), favour(pair, pairs, loss)] as const)
    .filter((each): each is readonly [string, Favour] => each[1] !== null);
}

/** `b is better on loss increase, KL divergence.`, a line per run, and what is undecided; empty if nothing was compared. */
export function overallVerdict(
  runs: readonly [string, string],
  common: CommonEvaluation | null,
  loss: LossDifference | null,
  experts: Measured,
): readonly string[] {
  const favours = [...(common === null ? [] : metricFavours(common, loss)), ...interpretabilityFavours(experts)];
  if (favours.length === 0) return [];
  const namesOf = (isIn: (of: Favour) => boolean) => listNames(favours.flatMap(([name, of]) => (isIn(of) ? name : [])));
  const wins = (["one", "other"] as const).map((side) => namesOf((of) => of.isClear && of.side === side));
  const better = wins.flatMap((names, i) => (names === "" ? [] : `${runs[i]} is better on ${names}.`));
  const undecided = namesOf(({ isClear }) => !isClear);
  return [
    ...(better.length === 0 ? ["No metric clearly favours a run."] : better),
    ...(undecided === "" ? [] : [`Undecided: ${undecided}.`]),
  ];
}

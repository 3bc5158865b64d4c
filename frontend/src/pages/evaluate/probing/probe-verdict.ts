/** One sentence per probe: whether single experts detect its classes better than single MLP neurons. */

import type { ProbeSummary } from "@/api/types";
import { formatFixed, formatSigned } from "@/lib/text/format";

type ProbedClass = ProbeSummary["classes"][number];

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Standard error of the mean; 0 for one value. */
function standardError(values: readonly number[]): number {
  if (values.length < 2) return 0;
  const centre = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1);
  return Math.sqrt(variance / values.length);
}

/** F1 of the best expert minus F1 of the best neuron. */
export const expertAdvantage = ({ top1, neuron }: ProbedClass) => top1.f1 - neuron.f1;

const overChance = ({ top1, random_gate: random }: ProbedClass) => top1.f1 - random.f1;

interface Difference {
  /** `no` if it is within two standard errors. */
  readonly sign: "up" | "down" | "no";
  /** For example `+0.195 ± 0.082`. */
  readonly text: string;
}

function differenceOf(values: readonly number[]): Difference {
  const [difference, error] = [mean(values), 2 * standardError(values)];
  const isClear = values.length > 1 && Math.abs(difference) > error;
  const sign = !isClear ? "no" : difference > 0 ? "up" : "down";
  return { sign, text: `${formatSigned(difference, 3)} ± ${formatFixed(error, 3)}` };
}

const AGAINST_NEURONS = {
  up: "By F1, single experts detect the classes better than single MLP neurons",
  down: "By F1, single MLP neurons detect the classes better than single experts",
  no: "By F1, there is no clear difference between single experts and single MLP neurons",
} as const;

const AGAINST_CHANCE = {
  up: "The experts also detect them better than an untrained gate",
  down: "An untrained gate detects them better than the experts",
  no: "The experts do not clearly detect them better than an untrained gate",
} as const;

/** Differences in ROC-AUC, which can disagree with those in F1; empty if it was not measured. */
function byRocAuc(classes: readonly ProbedClass[]): string {
  const against = (other: "neuron" | "random_gate") =>
    classes.flatMap(({ top1, [other]: { roc_auc: theirs } }) =>
      top1.roc_auc == null || theirs == null ? [] : [top1.roc_auc - theirs],
    );
  const [neurons, chance] = [against("neuron"), against("random_gate")];
  if (neurons.length === 0 || chance.length === 0) return "";
  return ` In ROC-AUC, which needs no threshold, it is ${differenceOf(neurons).text} to the neurons and ${differenceOf(chance).text} to the gate.`;
}

export function probeVerdict(classes: readonly ProbedClass[]): string {
  const neurons = differenceOf(classes.map(expertAdvantage));
  const chance = differenceOf(classes.map(overChance));
  const lost = classes.filter((one) => expertAdvantage(one) < 0);
  const worst = lost.toSorted((a, b) => expertAdvantage(a) - expertAdvantage(b))[0];
  const largest =
    worst === undefined
      ? ""
      : `, most on ${worst.name} (${formatFixed(worst.neuron.f1, 3)} against ${formatFixed(worst.top1.f1, 3)})`;
  return (
    `${AGAINST_NEURONS[neurons.sign]}: F1 of the expert minus F1 of the neuron is ${neurons.text} (mean over ${classes.length} classes, 2 standard errors). ` +
    `The best neuron beats the best expert in ${lost.length} of ${classes.length} classes${largest}. ` +
    `${AGAINST_CHANCE[chance.sign]}: the difference in F1 is ${chance.text}.${byRocAuc(classes)}`
  );
}

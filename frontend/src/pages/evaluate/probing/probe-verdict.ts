/** What a probe shows: its best experts against the best neurons and a random gate, by F1 and by ROC-AUC. */

import { type Baseline, type Difference, differenceOf, METRIC_NAMES, type ProbedClass } from "./probe-metrics";

const WORDS = { up: "better", down: "worse", no: "not clearly different" } as const;
/** F1 depends on the threshold of the classifier, ROC-AUC does not, and they can disagree. */
const JUDGED = ["f1", "roc-auc"] as const;

function compared(classes: readonly ProbedClass[], baseline: Baseline): string {
  const differences = JUDGED.flatMap((metric): readonly (readonly [string, Difference])[] => {
    const found = differenceOf(classes, baseline, metric);
    return found === null ? [] : [[METRIC_NAMES[metric], found]];
  });
  return differences.map(([name, { sign, text }]) => `${WORDS[sign]} by ${name}: ${text}`).join("; ");
}

/** `4 of 17 by F1 and 12 of 17 by ROC-AUC`. */
function lostClasses(classes: readonly ProbedClass[], baseline: Baseline): string {
  const counts = JUDGED.flatMap((metric) => {
    const found = differenceOf(classes, baseline, metric);
    return found === null ? [] : [`${found.lost} of ${found.classes} by ${METRIC_NAMES[metric]}`];
  });
  return counts.join(" and ");
}

/** One sentence per baseline. */
export function probeVerdict(classes: readonly ProbedClass[]): readonly string[] {
  return [
    `Best expert against the best MLP neuron: ${compared(classes, "neuron")}. The neuron is better in ${lostClasses(classes, "neuron")}.`,
    `Best expert against the best unit of a random gate: ${compared(classes, "random_gate")}. The gate is better in ${lostClasses(classes, "random_gate")}.`,
  ];
}

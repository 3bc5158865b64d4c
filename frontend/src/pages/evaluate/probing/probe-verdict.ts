/** What a probe shows: its best experts against the best neurons and a random gate, by all metrics. */

import { type Baseline, differenceOf, type Metric, METRIC_NAMES, METRICS, type ProbedClass } from "./probe-metrics";

const WORDS = { up: "better", down: "worse", no: "not clearly different" } as const;

export const BASELINES: readonly (readonly [Baseline, string])[] = [
  ["neuron", "best MLP neuron"],
  ["random_gate", "best unit of a random gate"],
];

/** The name within a sentence. */
const nameOf = (metric: Metric) => (metric === "balanced-accuracy" ? "balanced accuracy" : METRIC_NAMES[metric]);

/** `better only by F1, worse by ROC-AUC, not clearly different by balanced accuracy`. */
function judgement(classes: readonly ProbedClass[], baseline: Baseline): string {
  const signs = METRICS.flatMap((metric) => {
    const found = differenceOf(classes, baseline, metric);
    return found === null ? [] : [{ name: nameOf(metric), sign: found.sign }];
  });
  const parts = (["up", "down", "no"] as const).flatMap((sign) => {
    const names = signs.flatMap((each) => (each.sign === sign ? each.name : []));
    const only = sign === "up" && names.length === 1 && signs.length > 1 ? "only " : "";
    return names.length === 0 ? [] : [`${WORDS[sign]} ${only}by ${names.join(" and ")}`];
  });
  return parts.join(", ");
}

/** One sentence per baseline. */
export const probeVerdict = (classes: readonly ProbedClass[]): readonly string[] =>
  BASELINES.map(([baseline, name]) => `Best expert against the ${name}: ${judgement(classes, baseline)}.`);

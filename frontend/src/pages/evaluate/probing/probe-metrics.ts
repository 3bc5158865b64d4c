/** The metrics of a probe on test texts, and differences of its best expert from the baselines. */

import type { ProbeSummary } from "@/api/types";
import { formatFixed, formatSigned } from "@/lib/text/format";

export type ProbedClass = ProbeSummary["classes"][number];
type Score = ProbedClass["top1"];

/** What the best expert is compared with. */
export type Baseline = "neuron" | "random_gate";

/** F1 is last: it selects the units, and it depends on the threshold. */
export const METRICS = ["roc-auc", "balanced-accuracy", "f1"] as const;
export type Metric = (typeof METRICS)[number];
export const METRIC_NAMES: Readonly<Record<Metric, string>> = {
  "roc-auc": "ROC-AUC",
  "balanced-accuracy": "Balanced accuracy",
  f1: "F1",
};

/** Name of the file of labelled texts. */
export const fileName = ({ labels }: ProbeSummary) => labels.split("/").at(-1) ?? labels;

/** Null if it was not measured. */
export function scoreOf(score: Score, metric: Metric): number | null {
  return { f1: score.f1, "roc-auc": score.roc_auc, "balanced-accuracy": score.balanced_accuracy }[metric];
}

/** The 95 % interval. Balanced accuracy has none. */
export function intervalOf(score: Score, metric: Metric): readonly [number, number] | null {
  if (metric === "f1") return [score.low, score.high];
  const { roc_auc_low: low, roc_auc_high: high } = score;
  return metric === "roc-auc" && low !== null && high !== null ? [low, high] : null;
}

/** `0.255 (0.100 to 0.392)`. */
export function scoreText(score: Score, metric: Metric): string {
  const [value, interval] = [scoreOf(score, metric), intervalOf(score, metric)];
  if (value === null) return "–";
  const ends = interval?.map((end) => formatFixed(end, 3)).join(" to ");
  return ends === undefined ? formatFixed(value, 3) : `${formatFixed(value, 3)} (${ends})`;
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean score over classes; null if it is missing for one. */
export function meanScore(scores: readonly Score[], metric: Metric): number | null {
  const values = scores.flatMap((score) => scoreOf(score, metric) ?? []);
  return values.length < scores.length || values.length === 0 ? null : mean(values);
}

/** Quantile 0.975 of Student’s t distribution: a series in 1 / degrees of freedom, exact to 0.01 from 4 on. */
function tQuantile(freedom: number): number {
  const z = 1.96;
  const terms = [
    z,
    (z ** 3 + z) / 4,
    (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96,
    (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384,
  ];
  return terms.reduce((sum, term, power) => sum + term / freedom ** power, 0);
}

/** With fewer classes, an interval over classes says little. */
const MIN_CLASSES = 5;

export interface Difference {
  /** `no` if the interval contains zero, or if there are too few classes for one. */
  readonly sign: "up" | "down" | "no";
  /** `+0.134 (+0.065 to +0.203)`. */
  readonly text: string;
  /** Numbers of classes in which the baseline scores higher, and of all classes with both scores. */
  readonly lost: number;
  readonly classes: number;
}

/** Score of the best expert minus that of a baseline, mean over classes; null if it was not measured. */
export function differenceOf(classes: readonly ProbedClass[], baseline: Baseline, metric: Metric): Difference | null {
  const values = classes.flatMap(({ top1, [baseline]: other }) => {
    const [ours, theirs] = [scoreOf(top1, metric), scoreOf(other, metric)];
    return ours === null || theirs === null ? [] : [ours - theirs];
  });
  if (values.length === 0) return null;
  const [centre, count] = [mean(values), values.length];
  const lost = values.filter((value) => value < 0).length;
  if (count < MIN_CLASSES) return { sign: "no", text: formatSigned(centre, 3), lost, classes: count };
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (count - 1);
  const error = tQuantile(count - 1) * Math.sqrt(variance / count);
  const sign = centre - error > 0 ? "up" : centre + error < 0 ? "down" : "no";
  const [low, high] = [formatSigned(centre - error, 3), formatSigned(centre + error, 3)];
  return { sign, text: `${formatSigned(centre, 3)} (${low} to ${high})`, lost, classes: count };
}

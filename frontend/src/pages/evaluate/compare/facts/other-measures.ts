/** What a comparison says besides the loss: other metrics, inactive experts, label scores and token entropy. */

import type { EvaluationSummary, Fact, Interpretability, MeanOverExperts } from "@/api/types";
import { formatFact } from "@/components/runs/facts";
import { shortSource } from "@/components/runs/run-labels";
import { formatCompact, formatCount, formatFixed, formatSigned } from "@/lib/text/format";

import { type CommonEvaluation, factPairs } from "./common-evaluation";

/** Metrics that repeat the loss increase, which has a paired test of its own. */
const OF_THE_LOSS = ["Loss increase", "Loss recovered vs zero ablation", "Loss recovered vs mean ablation"];
/** Quantile of the normal distribution for a 95 % interval. */
const Z95 = 1.96;

const hasInterval = ({ low, high }: Fact) => low != null && high != null && low < high;
const isApart = (a: Fact, b: Fact) => (a.low ?? 0) > (b.high ?? 0) || (b.low ?? 0) > (a.high ?? 0);

/** Metrics with intervals that do not overlap, and those whose intervals do. Null without such metrics. */
export function metricsVerdict({ one, other }: CommonEvaluation): string | null {
  const pairs = factPairs(one.faithfulness, other.faithfulness).filter(
    (pair) => !OF_THE_LOSS.includes(pair.name) && hasInterval(pair.one) && hasInterval(pair.other),
  );
  if (pairs.length === 0) return null;
  const apart = pairs.filter((pair) => isApart(pair.one, pair.other));
  const differing = apart.map(
    (pair) =>
      `${pair.name} ${formatFact(pair.one.value, pair.one.unit)} against ${formatFact(pair.other.value, pair.other.unit)}`,
  );
  const count = `${apart.length} of ${pairs.length} other metrics have intervals that do not overlap`;
  const rest = "Overlapping intervals do not show that two runs are equal.";
  return apart.length === 0 ? `${count}. ${rest}` : `${count}: ${differing.join("; ")}. ${rest}`;
}

const inactiveShare = ({ health }: EvaluationSummary) =>
  health.find(({ name }) => name === "Inactive experts")?.value ?? null;

/** Experts that the evaluated text does not activate; null if unknown. */
export function inactiveVerdict({ one, other }: CommonEvaluation): string | null {
  const [first, second] = [inactiveShare(one), inactiveShare(other)];
  if (first === null || second === null) return null;
  return `${formatFact(first, "share")} of the experts of ${one.run} and ${formatFact(second, "share")} of those of ${other.run} are active on none of the ${formatCount(one.tokens)} evaluated tokens.`;
}

/** A difference of two means over experts, with its 95 % interval. */
function differenceOf(one: MeanOverExperts, other: MeanOverExperts, digits: number): string {
  const value = one.value - other.value;
  const error = Z95 * Math.hypot(one.standard_error, other.standard_error);
  const [middle, low, high] = [value, value - error, value + error].map((of) => formatSigned(of, digits));
  const clear = Math.abs(value) > error ? "" : ", no clear difference";
  return `${formatFixed(one.value, digits)} against ${formatFixed(other.value, digits)}, ${middle} (${low} to ${high}${clear})`;
}

const MEASURES = [
  { key: "label_score", name: "label score", digits: 3 },
  { key: "token_entropy", name: "token entropy in bits", digits: 2 },
] as const;

const indexOf = ({ indexed_tokens: tokens, index_text: text }: Interpretability) =>
  `${formatCompact(tokens)} tokens of ${shortSource(text)}`;

/** Measures of how easily experts are described, which are comparable only on indexes of the same text and length. */
export function interpretabilityVerdict(one: Interpretability | null, other: Interpretability | null): string {
  if (one === null || other === null) return "Not measured: both runs need an index (mxd index).";
  const measured = MEASURES.flatMap(({ key, name, digits }) => {
    const [first, second] = [one[key], other[key]];
    return first === null || second === null ? [] : [`${name} ${differenceOf(first, second, digits)}`];
  });
  if (measured.length === 0) return "Not measured: neither labels nor active experts.";
  const isSame = one.indexed_tokens === other.indexed_tokens && one.index_text === other.index_text;
  const sample = isSame
    ? `Both indexes: ${indexOf(one)}.`
    : `Not a fair comparison, as both depend on the index: ${indexOf(one)} against ${indexOf(other)}.`;
  return `Means over experts, with the 95 % interval of the difference: ${measured.join("; ")}. ${sample}`;
}

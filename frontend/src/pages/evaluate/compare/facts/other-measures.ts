/** What a comparison says besides the loss: routing, other metrics, dead experts, label scores and token entropy. */

import type { Fact, Interpretability, MeanOverExperts } from "@/api/types";
import { formatFact } from "@/components/runs/facts";
import { shortSource } from "@/components/runs/run-labels";
import { formatCompact, formatCount, formatFixed, formatSigned } from "@/lib/text/format";

import { type CommonEvaluation, type FactPair, factPairs } from "./common-evaluation";
import { controlOf, type Favour, favour, isOfTheLoss } from "./favours";

/** Quantile of the normal distribution for a 95 % interval. */
const Z95 = 1.96;

interface Favoured {
  readonly pair: FactPair;
  readonly favour: Favour;
}

function valuesOf({ name, one, other }: FactPair, pairs: readonly FactPair[]): string {
  const values = ({ one: a, other: b }: Pick<FactPair, "one" | "other">) =>
    `${formatFact(a.value, a.unit)} against ${formatFact(b.value, b.unit)}`;
  const control = controlOf({ name, one, other }, pairs);
  return `${name} ${values({ one, other })}${control === undefined ? "" : ` (controls ${values(control)})`}`;
}

/** Metrics besides the loss that clearly favour a run. Null without such metrics. */
export function metricsVerdict({ one, other }: CommonEvaluation): string | null {
  const pairs = factPairs(one.faithfulness, other.faithfulness);
  const judged = pairs.flatMap((pair): readonly Favoured[] => {
    const found = isOfTheLoss(pair) ? null : favour(pair, pairs, null);
    return found === null ? [] : [{ pair, favour: found }];
  });
  if (judged.length === 0) return null;
  const sentences = ([one.run, other.run] as const).flatMap((run, i) => {
    const clear = judged.filter(({ favour: { side, isClear } }) => isClear && (side === "one") === (i === 0));
    if (clear.length === 0) return [];
    return [`In favour of ${run}: ${clear.map(({ pair }) => valuesOf(pair, pairs)).join("; ")}.`];
  });
  const rest = "The other metrics are not clear, which does not show that the runs are equal.";
  return [...sentences, judged.every(({ favour: { isClear } }) => isClear) ? "" : rest].join(" ").trim();
}

/** Why normalised MSE and variance explained can favour different runs; null if they do not. */
export function reconstructionNote(pairs: readonly FactPair[]): string | null {
  const [mse, variance] = ["Normalised MSE", "Variance explained"].map((name) => {
    const pair = pairs.find((one) => one.name === name);
    return pair === undefined ? null : favour(pair, pairs, null);
  });
  if (!mse || !variance || mse.side === variance.side) return null;
  return (
    "Normalised MSE and variance explained favour different runs. Both can be true: normalised MSE divides each token’s error by its own ‖y‖², so every token counts equally. " +
    "Variance explained divides the summed error by the total variance, so tokens with a large output count most."
  );
}

/** Routing shares of both runs, and which loss they flatter. Null if they were not measured. */
export function routingVerdict({ one, other }: CommonEvaluation): string | null {
  const pairs = factPairs(one.faithfulness, other.faithfulness);
  const pair = ["Strict routing share", "Routing share"]
    .map((name) => pairs.find((each) => each.name === name))
    .find(Boolean);
  if (pair === undefined) return null;
  const text = ({ value, low, high, unit }: Fact) =>
    `${formatFact(value, unit)} (${formatFact(low, unit)} to ${formatFact(high, unit)})`;
  const [lower, higher] =
    (pair.one.value ?? 0) < (pair.other.value ?? 0) ? [pair.one, pair.other] : [pair.other, pair.one];
  const isApart = (lower.high ?? 0) < (higher.low ?? 0);
  const run = lower === pair.one ? one.run : other.run;
  const consequence = isApart
    ? ` More of the output of ${run} does not depend on routing, which makes its loss increase look better.`
    : " The intervals overlap, so the losses are comparable.";
  return `${pair.name} ${text(pair.one)} against ${text(pair.other)}.${consequence}`;
}

interface IndexedRun {
  readonly name: string;
  readonly num_experts: number;
  readonly active_experts: number | null;
  readonly indexed_tokens: number | null;
}

/** Share of experts that no indexed token activates; null without both indexes. */
export function deadVerdict(one: IndexedRun, other: IndexedRun): string | null {
  const texts = [one, other].flatMap(({ name, num_experts: count, active_experts: active, indexed_tokens: tokens }) =>
    active === null || tokens === null
      ? []
      : [
          `${formatFact(1 - active / count, "share")} of the experts of ${name} are active on none of ${formatCount(tokens)} indexed tokens`,
        ],
  );
  return texts.length < 2 ? null : `${texts.join("; ")}.`;
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
  { key: "label_score", name: "label score (higher is easier to describe)", digits: 3 },
  { key: "token_entropy", name: "token entropy in bits (lower is more specific)", digits: 2 },
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

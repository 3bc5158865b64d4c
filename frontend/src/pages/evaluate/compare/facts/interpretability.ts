/** How easily the experts of two runs are described: label scores and token entropies. */

import type { Interpretability, MeanOverExperts } from "@/api/types";
import { shortSource } from "@/components/runs/run-labels";
import { formatCompact, formatCount, formatEnd, formatFixed, formatSigned } from "@/lib/text/format";

import type { Favour } from "./favours";

/** Quantile of the normal distribution for a 95 % interval. */
const Z95 = 1.96;

export type Measured = readonly [Interpretability | null, Interpretability | null];

const MEASURES = [
  {
    key: "label_score",
    name: "Score of automatic labels",
    meaning: "balanced accuracy on held-out examples, 0.5 is chance; higher is easier to describe",
    digits: 3,
    direction: 1,
  },
  { key: "token_entropy", name: "Token entropy", meaning: "bits, lower is more specific", digits: 2, direction: -1 },
] as const;

interface MeasuredPair {
  readonly measure: (typeof MEASURES)[number];
  readonly one: MeanOverExperts;
  readonly other: MeanOverExperts;
}

function measuredPairs(one: Interpretability, other: Interpretability): readonly MeasuredPair[] {
  return MEASURES.flatMap((measure) => {
    const [first, second] = [one[measure.key], other[measure.key]];
    return first === null || second === null ? [] : [{ measure, one: first, other: second }];
  });
}

const errorOf = ({ one, other }: MeasuredPair) => Z95 * Math.hypot(one.standard_error, other.standard_error);

function favourOf(pair: MeasuredPair): Favour {
  const difference = pair.one.value - pair.other.value;
  const side = pair.measure.direction * difference > 0 ? "one" : "other";
  return { side, isClear: Math.abs(difference) > errorOf(pair), difference };
}

/** Both measures depend on the index. */
const isSameIndex = (one: Interpretability, other: Interpretability) =>
  one.indexed_tokens === other.indexed_tokens && one.index_text === other.index_text;

/** Which run each measure favours; empty if the runs are not indexed on the same tokens. */
export function interpretabilityFavours([one, other]: Measured): readonly (readonly [string, Favour])[] {
  if (one === null || other === null || !isSameIndex(one, other)) return [];
  return measuredPairs(one, other).map((pair) => [pair.measure.name, favourOf(pair)]);
}

/** `Score of automatic labels (…) favours b: 0.808 against 0.832, −0.024 (−0.027 to −0.020).` Without names, no run is favoured. */
function sentence(pair: MeasuredPair, runs: readonly [string, string] | null): string {
  const { name, meaning, digits } = pair.measure;
  const { side, isClear, difference } = favourOf(pair);
  const value = formatSigned(difference, digits);
  const [low, high] = [difference - errorOf(pair), difference + errorOf(pair)].map((end) => formatEnd(end, digits));
  const winner = isClear ? ` favours ${runs?.[side === "one" ? 0 : 1]}` : " does not differ clearly";
  const values = `${formatFixed(pair.one.value, digits)} against ${formatFixed(pair.other.value, digits)}`;
  return `${name} (${meaning})${runs === null ? "" : winner}: ${values}, ${value} (${low} to ${high}).`;
}

const indexOf = ({ indexed_tokens: tokens, index_text: text }: Interpretability) =>
  `${formatCompact(tokens)} tokens of ${shortSource(text)}`;

/** `15,786 and 18,135 active experts, of which 13,912 and 16,047 have an automatic label`. */
function sample(one: Interpretability, other: Interpretability): string {
  const counts = (key: (typeof MEASURES)[number]["key"]) =>
    [one, other].map(({ [key]: mean }) => formatCount(mean?.experts ?? 0)).join(" and ");
  return `Sample: ${counts("token_entropy")} active experts, of which ${counts("label_score")} have an automatic label.`;
}

/**
 * The measures of both runs, which are comparable only on indexes of the same text and length.
 *
 * @param runs - names, to say which run a measure favours; null if their conditions are unequal
 */
export function interpretabilityVerdict(runs: readonly [string, string] | null, [one, other]: Measured): string {
  if (one === null || other === null) return "Not measured: both runs need an index (mxd index).";
  const pairs = measuredPairs(one, other);
  if (pairs.length === 0) return "Not measured: neither labels nor active experts.";
  const isSame = isSameIndex(one, other);
  const index = isSame
    ? `Both indexes: ${indexOf(one)}.`
    : `Not a fair comparison, as both depend on the index: ${indexOf(one)} against ${indexOf(other)}.`;
  const sentences = pairs.map((pair) => sentence(pair, isSame ? runs : null));
  return `Means over experts, with the 95 % interval of the difference. ${sentences.join(" ")} ${sample(one, other)} ${index}`;
}

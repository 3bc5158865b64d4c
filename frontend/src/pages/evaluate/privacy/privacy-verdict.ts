/** What a privacy fine-tune changed, what it costs, and where it has less effect, with figures and samples. */

import type { PrivacyFineTune, PrivacyResult } from "@/api/types";
import { formatCount, formatFixed, formatPercent, formatPlural, formatSigned } from "@/lib/text/format";

export interface PrivacyVerdict {
  /** The probability of the true token before and after, on the chosen and on other passages. */
  readonly title: string;
  readonly effect: string;
  readonly cost: string;
  /** Empty if nothing else was measured. */
  readonly limits: readonly string[];
}

type Change = PrivacyResult["protected"];
type Measured = Pick<PrivacyFineTune, "result" | "skip_tokens">;

const percent = (share: number) => `${formatPercent(share, 1)} %`;
const change = ({ before, after }: Change) => `${percent(before.true_token)} to ${percent(after.true_token)}`;
const predictions = ({ before }: Change) => formatPlural(before.predictions, "prediction");

/** Share of the probability of the true token that is lost. */
export const lostShare = ({ before, after }: Change) =>
  before.true_token === 0 ? 0 : 1 - after.true_token / before.true_token;

/** A variation is less affected if it loses less than half as large a share of the true token’s probability. */
const MIN_RELATIVE = 0.5;
/** Quantile of the normal distribution for a 95 % interval. */
const Z95 = 1.96;

/** The change at each scored prediction, as far as the passages are stored. */
function changes({ result, skip_tokens: skipped }: Measured): readonly number[] {
  return result.passage_tokens.flatMap((tokens) =>
    tokens.slice(skipped).map(({ before, after }) => after.probability - before.probability),
  );
}

const points = (share: number) => `${formatFixed(100 * Math.abs(share), 1)} points`;
const verbOf = (share: number) => (share < 0 ? "falls" : "rises");

/** The interval of the mean change over predictions; it needs the stored passages. */
function interval(measured: Measured): string {
  const values = changes(measured);
  if (values.length < 2) return "no interval, as the passages are not stored";
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
  const error = Z95 * Math.sqrt(variance / values.length);
  const [low, high] = [mean - error, mean + error].map((value) => formatSigned(100 * value, 1));
  return `95 % interval of the change ${low} to ${high} over predictions`;
}

const changed = ({ before, after }: Change) => after.true_token - before.true_token;

function effect(measured: Measured): string {
  const { protected: found, passages } = measured.result;
  const size = `${formatPlural(passages, "passage")}, ${predictions(found)}; ${interval(measured)}`;
  const change = changed(found);
  return `On the chosen passages, the mean probability of the true next token ${verbOf(change)} by ${points(change)} (${size}).`;
}

export const OTHER_PASSAGES = "unprotected";

/** The change on passages that should stay predictable. */
function costOnOthers({ variations, protected: chosen }: PrivacyResult): string {
  const found = variations[OTHER_PASSAGES];
  if (found === undefined) return "The change on other well-known passages was not measured.";
  const change = changed(found);
  const also = change < 0 === changed(chosen) < 0 ? " also" : "";
  return `On other passages, which should stay predictable, it${also} ${verbOf(change)} by ${points(change)} (${predictions(found)}; no interval, as only means are stored).`;
}

function title({ passages, protected: chosen, variations, parents }: PrivacyResult): string {
  const arrow = ({ before, after }: Change) => `${percent(before.true_token)} → ${percent(after.true_token)}`;
  const other = variations[OTHER_PASSAGES];
  const rest = other === undefined ? "" : `, ${arrow(other)} on other passages`;
  return `Probability of the true token with ${parents.join(" + ")}: ${arrow(chosen)} on ${formatPlural(passages, "chosen passage")}${rest}`;
}

function cost({ retained }: PrivacyResult): string {
  const { value, low, high } = retained.loss_increase;
  const interval = `${formatSigned(value, 3)} nats per token (95 % interval ${formatSigned(low, 3)} to ${formatSigned(high, 3)} over sequences, ${predictions(retained.confidence)})`;
  const loss = "The loss on the test part of the retain set";
  if (low > 0) return `${loss} rises by ${interval}.`;
  if (high < 0) return `${loss} does not rise: ${interval}. Fine-tuning also trains on text of this kind.`;
  return `${loss} does not change clearly: ${interval}.`;
}

function relearning({ relearning: attack, passages }: PrivacyResult): readonly string[] {
  if (attack === null) return [];
  const others = formatPlural(passages - attack.passages, "passage");
  return [
    `Relearning: ${attack.steps} fine-tuning steps on ${others} change the other ${formatCount(attack.passages)} ` +
      `from ${percent(attack.protected.true_token)} to ${percent(attack.attacked.true_token)}. ` +
      `Control: the same steps on the original run give ${percent(attack.original_attacked.true_token)} ` +
      `(${formatPlural(attack.original.predictions, "prediction")}).`,
  ];
}

const REWRITINGS: readonly (readonly [string, string])[] = [
  ["given", "Paraphrases"],
  ["later beginning", "Later start, without the first third of the words"],
  ["swapped case", "Swapped case"],
];

function rewritings({ variations, protected: found }: PrivacyResult): readonly string[] {
  return REWRITINGS.flatMap(([kind, name]) => {
    const measured = variations[kind];
    if (measured === undefined) return [];
    const isLess = lostShare(measured) < MIN_RELATIVE * lostShare(found);
    return [`${name}: ${change(measured)} (${predictions(measured)})${isLess ? ", less affected" : ""}.`];
  });
}

function lastStep({ best_step: best, steps }: PrivacyResult): readonly string[] {
  return best === steps ? [`The last of the ${steps} steps was the best one, so more steps may have more effect.`] : [];
}

export function privacyVerdict(measured: Measured): PrivacyVerdict {
  const { result } = measured;
  return {
    title: title(result),
    effect: effect(measured),
    cost: `${costOnOthers(result)} ${cost(result)}`,
    limits: [...rewritings(result), ...relearning(result), ...lastStep(result)],
  };
}

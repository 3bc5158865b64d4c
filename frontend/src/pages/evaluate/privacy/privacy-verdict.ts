/** What a privacy fine-tune achieved, what it costs, and what it does not protect against, with its figures. */

import type { PrivacyFineTune, PrivacyResult } from "@/api/types";
import { formatCount, formatPercent, formatPlural, formatSigned } from "@/lib/text/format";

export interface PrivacyVerdict {
  readonly effect: string;
  readonly cost: string;
  /** Empty if nothing else was measured. */
  readonly limits: readonly string[];
}

type Change = PrivacyResult["protected"];

const percent = (share: number) => `${formatPercent(share, 1)} %`;
const change = ({ before, after }: Change) => `${percent(before.true_token)} to ${percent(after.true_token)}`;
const predictions = ({ before }: Change) => formatPlural(before.predictions, "prediction");

/** Share of the confidence that the fine-tune removes: 1 is complete uncertainty, 0 no effect. */
export const removedShare = ({ before, after }: Change) =>
  before.confidence_distance === 0 ? 0 : 1 - after.confidence_distance / before.confidence_distance;

/** A variation is named if the fine-tune removes less than half as much of its confidence. */
const MIN_RELATIVE = 0.5;

function effect({ protected: found, passages }: PrivacyResult): string {
  const size = `${formatPlural(passages, "passage")}, ${predictions(found)}`;
  const verb = found.after.true_token < found.before.true_token ? "falls" : "changes";
  return `On the protected passages, the mean probability of the true next token ${verb} from ${change(found)} (${size}).`;
}

function cost({ retained }: PrivacyResult): string {
  const { value, low, high } = retained.loss_increase;
  const interval = `${formatSigned(value, 3)} nats per token (95 % interval ${formatSigned(low, 3)} to ${formatSigned(high, 3)}, ${formatCount(retained.tokens)} tokens)`;
  const loss = "The loss on the test part of the retain set";
  if (low > 0) return `${loss} rises by ${interval}.`;
  if (high < 0) return `${loss} does not rise: ${interval}. Fine-tuning also trains on text of this kind.`;
  return `${loss} does not change clearly: ${interval}.`;
}

function relearning({ relearning: attack, passages }: PrivacyResult): readonly string[] {
  if (attack === null || attack.attacked.true_token <= attack.protected.true_token) return [];
  const others = formatPlural(passages - attack.passages, "passage");
  return [
    `Relearning restores part of it: ${attack.steps} fine-tuning steps on ${others} raise the other ${formatCount(attack.passages)} ` +
      `from ${percent(attack.protected.true_token)} to ${percent(attack.attacked.true_token)} ` +
      `(${percent(attack.original.true_token)} before protection, ${formatPlural(attack.original.predictions, "prediction")}).`,
  ];
}

const REWRITINGS: readonly (readonly [string, string])[] = [
  ["given", "Paraphrases"],
  ["swapped case", "Passages in swapped case"],
];

export const UNPROTECTED = "unprotected";

function rewritings({ variations, protected: found }: PrivacyResult): readonly string[] {
  return REWRITINGS.flatMap(([kind, name]) => {
    const measured = variations[kind];
    if (measured === undefined || removedShare(measured) >= MIN_RELATIVE * removedShare(found)) return [];
    return [`${name} are less protected: ${change(measured)} (${predictions(measured)}).`];
  });
}

function unprotected({ variations }: PrivacyResult): readonly string[] {
  const measured = variations[UNPROTECTED];
  if (measured === undefined) return [];
  return [
    `Unprotected passages, which should stay predictable, change too: ${change(measured)} (${predictions(measured)}).`,
  ];
}

export function privacyVerdict({ result }: Pick<PrivacyFineTune, "result">): PrivacyVerdict {
  return {
    effect: effect(result),
    cost: cost(result),
    limits: [...unprotected(result), ...rewritings(result), ...relearning(result)],
  };
}

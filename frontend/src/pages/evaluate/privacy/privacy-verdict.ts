/** What a privacy fine-tune achieved, what it costs, and what it does not protect against, with its figures. */

import type { PrivacyFineTune, PrivacyResult } from "@/api/types";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

export interface PrivacyVerdict {
  readonly effect: string;
  readonly cost: string;
  /** Empty if nothing else was measured. */
  readonly limits: readonly string[];
}

type Change = PrivacyResult["protected"];

const percent = (share: number) => `${formatPercent(share, 1)} %`;
const change = ({ before, after }: Change) => `${percent(before.true_token)} to ${percent(after.true_token)}`;
const plural = (count: number, noun: string) => `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Share of the confidence that the fine-tune removes: 1 is complete uncertainty, 0 no effect. */
export const removedShare = ({ before, after }: Change) =>
  before.confidence_distance === 0 ? 0 : 1 - after.confidence_distance / before.confidence_distance;

/** A variation is named if the fine-tune removes less than half as much of its confidence. */
const MIN_RELATIVE = 0.5;

function effect({ protected: found, passages }: PrivacyResult): string {
  const size = `${plural(passages, "passage")}, ${plural(found.before.predictions, "prediction")}`;
  const verb = found.after.true_token < found.before.true_token ? "falls" : "changes";
  return `The mean probability of the true next token ${verb} from ${change(found)} (${size}).`;
}

function cost({ retained }: PrivacyResult): string {
  const { value, low, high } = retained.loss_increase;
  const interval = `${formatSigned(value, 3)} nats per token (95 % interval ${formatSigned(low, 3)} to ${formatSigned(high, 3)}, ${formatCount(retained.tokens)} tokens)`;
  if (low > 0) return `The loss on other text rises by ${interval}.`;
  if (high < 0) return `The loss on other text does not rise: ${interval}. Fine-tuning also trains on that text.`;
  return `The loss on other text does not change clearly: ${interval}.`;
}

function relearning({ relearning: attack }: PrivacyResult): readonly string[] {
  if (attack === null) return [];
  const [before, hidden, relearned] = [attack.original, attack.protected, attack.attacked];
  const lost = before.confidence_distance - hidden.confidence_distance;
  if (lost <= 0) return [];
  const restored = (relearned.confidence_distance - hidden.confidence_distance) / lost;
  const amount = restored >= 0.5 ? "most" : restored >= 0.1 ? "part" : "little";
  return [
    `${attack.steps} fine-tuning steps on the other passages restore ${amount} of the confidence on ${plural(attack.passages, "passage")}: ` +
      `${formatFixed(before.confidence_distance)} before, ${formatFixed(hidden.confidence_distance)} protected, ${formatFixed(relearned.confidence_distance)} relearned.`,
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
    return [`${name} are less protected: ${change(measured)}.`];
  });
}

function unprotected({ variations }: PrivacyResult): readonly string[] {
  const measured = variations[UNPROTECTED];
  if (measured === undefined) return [];
  return [
    `Known passages that should stay predictable also change: ${change(measured)} (${plural(measured.before.predictions, "prediction")}).`,
  ];
}

export function privacyVerdict({ result }: Pick<PrivacyFineTune, "result">): PrivacyVerdict {
  return {
    effect: effect(result),
    cost: cost(result),
    limits: [...unprotected(result), ...rewritings(result), ...relearning(result)],
  };
}

/** An automatic label, always marked as such, with its score. */

import type { AutomaticLabel } from "@/api/types";
import { formatFixed, formatPercent } from "@/lib/text/format";

/** The label, or null if the server says that it is too weak for a name. */
export function shownAutomatic(automatic: AutomaticLabel | null | undefined): AutomaticLabel | null {
  return automatic?.is_clear === true ? automatic : null;
}

/** The language to which a rule is limited, e.g. of `English: “was”`. */
const LANGUAGE = /^(\p{Lu}\p{L}+(?:(?:, | or )\p{Lu}\p{L}+)*): /u;

export function describeAutomaticLabel(automatic: AutomaticLabel): string {
  const { label, labeller, balanced_accuracy, precision, recall, test_examples, weaknesses } = automatic;
  const by = labeller === "features" ? "from its top examples" : `by ${labeller}`;
  if (balanced_accuracy === null) return `Automatic label ${by}; not tested`;
  const score = `balanced accuracy ${formatFixed(balanced_accuracy)} on ${test_examples} held-out examples`;
  const onTokens =
    precision === null || recall === null
      ? ""
      : `; on a sample of tokens, precision ${formatPercent(precision, 0)} %, recall ${formatPercent(recall, 0)} %`;
  const limit = LANGUAGE.exec(label)?.[1];
  const within = limit === undefined ? "" : `; “${limit}:” means only in ${limit} text`;
  const weak = weaknesses.length === 0 ? "" : `; weak: ${weaknesses.join(", ")}`;
  return `Automatic label ${by}; ${score}${onTokens}${weak}${within}`;
}

/** Kind and score of an automatic label, as text. */
export function automaticLabelScore({ balanced_accuracy: accuracy, is_clear: isClear }: AutomaticLabel): string {
  const score = accuracy === null ? "not tested" : `balanced accuracy ${formatFixed(accuracy)}`;
  return `${isClear ? "" : "weak "}automatic label, ${score}`;
}

interface AutomaticLabelProps {
  readonly automatic: AutomaticLabel;
}

export function AutomaticLabelText({ automatic }: AutomaticLabelProps) {
  const { balanced_accuracy: accuracy } = automatic;
  return (
    <span className={automatic.is_clear ? "auto-label" : "auto-label weak"} title={describeAutomaticLabel(automatic)}>
      <span className="auto-mark">
        <span aria-hidden="true">auto{accuracy !== null && ` ${formatFixed(accuracy)}`}</span>
        <span className="sr">{automaticLabelScore(automatic)}:</span>
      </span>{" "}
      {automatic.label}
    </span>
  );
}

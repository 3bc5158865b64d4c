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
  const { label, labeller, balanced_accuracy: accuracy, precision, recall, test_examples, weaknesses } = automatic;
  const { f1 } = automatic;
  const limit = LANGUAGE.exec(label)?.[1];
  return [
    `Automatic label ${labeller === "features" ? "from its top examples" : `by ${labeller}`}`,
    ...(f1 === null
      ? []
      : [
          `on held-out tokens F1 = ${formatFixed(f1)}, precision ${labelShare(precision)}, recall ${labelShare(recall)}`,
        ]),
    accuracy === null ? "not tested" : `balanced accuracy ${formatFixed(accuracy)} on ${test_examples} examples`,
    ...(weaknesses.length === 0 ? [] : [`weak: ${weaknesses.join(", ")}`]),
    ...(limit === undefined ? [] : [`“${limit}:” means only in ${limit} text`]),
  ].join("; ");
}

/** Precision or recall, as text. */
export const labelShare = (value: number | null): string =>
  value === null ? "unknown" : `${formatPercent(value, 0)} %`;

/** Kind and score of an automatic label, as text. */
export function automaticLabelScore({ f1, is_clear: isClear }: AutomaticLabel): string {
  return `${isClear ? "" : "weak "}automatic label, ${f1 === null ? "not tested on tokens" : `F1 = ${formatFixed(f1)}`}`;
}

export function AutomaticLabelText({ automatic }: { readonly automatic: AutomaticLabel }) {
  const { f1 } = automatic;
  return (
    <span className={automatic.is_clear ? "auto-label" : "auto-label weak"} title={describeAutomaticLabel(automatic)}>
      <span className="auto-mark">
        <span aria-hidden="true">auto{f1 !== null && ` ${formatFixed(f1)}`}</span>
        <span className="sr">{automaticLabelScore(automatic)}:</span>
      </span>{" "}
      {automatic.label}
    </span>
  );
}

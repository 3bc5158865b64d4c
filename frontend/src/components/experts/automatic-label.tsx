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
  const { label, labeller, balanced_accuracy, precision, recall, test_examples } = automatic;
  const by = labeller === "features" ? "from its top examples" : `by ${labeller}`;
  if (balanced_accuracy === null) return `Automatic label ${by}; not tested`;
  const score = `balanced accuracy ${formatFixed(balanced_accuracy)} on ${test_examples} held-out examples`;
  const onTokens =
    precision === null || recall === null
      ? ""
      : `; on a sample of tokens, precision ${formatPercent(precision, 0)} %, recall ${formatPercent(recall, 0)} %`;
  const limit = LANGUAGE.exec(label)?.[1];
  const within = limit === undefined ? "" : `; “${limit}:” means only in ${limit} text`;
  return `Automatic label ${by}; ${score}${onTokens}${within}`;
}

/** Kind and score of an automatic label, as text. */
export function automaticLabelScore({
  balanced_accuracy,
  precision,
  recall,
  is_clear: isClear,
}: AutomaticLabel): string {
  if (balanced_accuracy === null) return "automatic label, not tested";
  if (isClear || precision === null || recall === null)
    return `${isClear ? "" : "weak "}automatic label, balanced accuracy ${formatFixed(balanced_accuracy)}`;
  return `weak automatic label, precision ${formatPercent(precision, 0)} %, recall ${formatPercent(recall, 0)} %`;
}

/** Mark of an automatic label: its balanced accuracy or, if it is weak, its precision on a sample of tokens. */
function Mark({ automatic: { balanced_accuracy: accuracy, precision, is_clear: isClear } }: AutomaticLabelProps) {
  if (accuracy === null)
    return (
      <>
        auto<span className="sr">matic label, not tested</span>
      </>
    );
  if (!isClear && precision !== null)
    return (
      <>
        weak<span className="sr"> automatic label, precision</span> {formatPercent(precision, 0)} %
      </>
    );
  return (
    <>
      {isClear ? "auto" : "weak"}
      <span className="sr">{isClear ? "matic" : " automatic"} label, balanced accuracy</span> {formatFixed(accuracy)}
    </>
  );
}

interface AutomaticLabelProps {
  readonly automatic: AutomaticLabel;
}

export function AutomaticLabelText({ automatic }: AutomaticLabelProps) {
  return (
    <span className={automatic.is_clear ? "auto-label" : "auto-label weak"} title={describeAutomaticLabel(automatic)}>
      <span className="auto-mark">
        <Mark automatic={automatic} />
        <span className="sr">:</span>
      </span>{" "}
      {automatic.label}
    </span>
  );
}

/** An automatic label, always marked as such, with its accuracy. */

import type { AutomaticLabel } from "@/api/types";
import { formatFixed } from "@/lib/text/format";

export function describeAutomaticLabel({
  labeller: maker,
  balanced_accuracy,
  test_examples: tested,
}: AutomaticLabel): string {
  const by = maker === "features" ? "from its top examples" : `by ${maker}`;
  return `Automatic label ${by}; balanced accuracy ${formatFixed(balanced_accuracy)} on ${tested} held-out examples`;
}

export function AutomaticLabelText({ automatic }: { readonly automatic: AutomaticLabel }) {
  return (
    <span className="auto-label" title={describeAutomaticLabel(automatic)}>
      <span className="auto-mark">
        auto<span className="sr">matic label:</span>
      </span>{" "}
      {automatic.label}
    </span>
  );
}

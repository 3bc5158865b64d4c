/** A label that a program gave: always marked as such, with how well it fits. */

import type { AutomaticLabel } from "@/api/types";
import { formatFixed } from "@/lib/format";

export function automaticNote({ maker, balanced_accuracy, tested }: AutomaticLabel): string {
  const by = maker === "features" ? "from its contexts" : `by ${maker}`;
  return `Automatic label, ${by}; balanced accuracy ${formatFixed(balanced_accuracy)} on ${tested} contexts held back`;
}

export function AutomaticLabelText({ automatic }: { readonly automatic: AutomaticLabel }) {
  return (
    <span className="auto-label" title={automaticNote(automatic)}>
      <span className="auto-mark">
        auto<span className="sr">matic label:</span>
      </span>{" "}
      {automatic.label}
    </span>
  );
}

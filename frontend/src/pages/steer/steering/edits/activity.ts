/** Whether an edit can have an effect: scaling an expert that is inactive everywhere changes nothing. */

import type { RoutingResponse } from "@/api/types";
import type { Edit } from "@/lib/edits/edits";
import type { VariantText } from "@/pages/steer/steering/texts/generation";

/** Number of tokens on which an expert is active. */
export interface Activity {
  readonly inPrompt: number;
  /** Only counts the strongest experts of each generated token, because the server sends no others. */
  readonly inText: number;
}

export function measureActivity(
  expert: number,
  routing: RoutingResponse | undefined,
  steered: VariantText,
): Activity | null {
  if (routing === undefined) return null;
  const has = (experts: readonly { readonly expert: number }[]) => experts.some((active) => active.expert === expert);
  const tokens = steered.continuations.flatMap((continuation) => continuation.tokens);
  return {
    inPrompt: routing.tokens.filter((token) => !token.start && has(token.experts)).length,
    // The first generated token carries the routing of the prompt's last token.
    inText: tokens.filter((token) => token.position > 0 && has(token.experts)).length,
  };
}

/** Scaling and ablating need an existing activation; adding and setting create one. */
function needsActivity(edit: Edit): boolean {
  return edit.mode === "scale" || edit.mode === "ablate";
}

export function hasNoEffect(edit: Edit, activity: Activity | null): boolean {
  return needsActivity(edit) && activity !== null && activity.inPrompt + activity.inText === 0;
}

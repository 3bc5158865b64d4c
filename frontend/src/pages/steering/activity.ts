/** Whether an edit has anything to act on: scaling an expert that is nowhere active changes nothing. */

import type { RoutingResponse } from "@/api/types";
import type { Edit } from "@/lib/edits";

import type { ArmText } from "./generation";

/** On how many tokens an expert is active. */
export interface Activity {
  readonly inPrompt: number;
  /** Among the strongest experts of the steered tokens, which is all that is known of them. */
  readonly inText: number;
}

export function activityOf(expert: number, routing: RoutingResponse | undefined, steered: ArmText): Activity | null {
  if (routing === undefined) return null;
  const has = (experts: readonly { readonly expert: number }[]) => experts.some((active) => active.expert === expert);
  const tokens = steered.continuations.flatMap((continuation) => continuation.tokens);
  return {
    inPrompt: routing.tokens.filter((token) => !token.start && has(token.experts)).length,
    // The first token's routing is that of the prompt's last token.
    inText: tokens.filter((token) => token.position > 0 && has(token.experts)).length,
  };
}

/** Scaling and switching off need a coefficient that is there; adding and setting make one. */
export function needsActivity(edit: Edit): boolean {
  return edit.mode === "scale" || edit.mode === "off";
}

export function hasNothingToAct(edit: Edit, activity: Activity | null): boolean {
  return needsActivity(edit) && activity !== null && activity.inPrompt + activity.inText === 0;
}

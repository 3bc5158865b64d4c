/** What a card says of its edit: the range of its slider, its strength, and whether it can have an effect. */

import type { ExpertDetail, RoutingResponse } from "@/api/types";
import type { SliderTick } from "@/components/ui/slider";
import {
  type Edit,
  EDIT_SIGNS,
  type EditMode,
  NEUTRAL_STRENGTH,
  strengthDigits,
  type StrengthEdit,
} from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";
import type { VariantText } from "./texts/generation";

/** Usual end of the sliders: a stronger one, beyond the expert’s largest activation, may break the text. A typed strength beyond it extends its slider. */
const USUAL_MAX: Readonly<Record<StrengthEdit["mode"], number>> = { scale: 8, add: 4, set: 4 };

export function editScale({ mode, strength }: StrengthEdit) {
  const max = Math.max(USUAL_MAX[mode], Math.ceil(Math.abs(strength)));
  const min = mode === "add" ? -max : 0;
  const neutral = NEUTRAL_STRENGTH[mode];
  const ticks = [...new Set([min, neutral, max])].map((at): SliderTick => {
    const sign = at < 0 ? "−" : at === 0 ? "" : EDIT_SIGNS[mode];
    return { at, label: `${sign}${Math.abs(at)}` };
  });
  return { min, max, step: 0.1, neutral, sign: EDIT_SIGNS[mode], ticks };
}

/** The expert, with the strength below which to expect little of an edit; null without an index. */
type Compared = Pick<ExpertDetail, "small_below"> & {
  readonly row: Pick<ExpertDetail["row"], "max_activation" | "p99" | "steerability">;
};

/** The strength as an activation, compared with the expert's largest one in the index, and what to expect of it. */
export function describeStrength(mode: EditMode, strength: number, compared: Compared | null) {
  if (compared === null || mode === "ablate" || mode === "scale" || !(compared.row.p99 > 0))
    return { text: "", isWarning: false };
  const { row, small_below: small } = compared;
  const size = Math.abs(strength);
  const change = mode === "set" ? "Sets its activation to" : strength < 0 ? "Subtracts" : "Adds";
  const unit = `${formatFixed(size, strengthDigits(size))} × p99`;
  const text = `${change} ${formatFixed(size * row.p99, 1)} on each edited token (${unit}). The largest in the index is ${formatFixed(row.max_activation, 1)}.`;
  if (strength > Math.max(USUAL_MAX[mode], row.max_activation / row.p99))
    return { text: `${text} So strong an edit may break the text.`, isWarning: true };
  if (small === null || size === 0 || size >= small) return { text, isWarning: false };
  const kl = (row.steerability ?? 0) * size ** 2;
  const expected = `Low steerability: about ${kl < 0.001 ? "0.001 or less" : Number(kl.toPrecision(1))} nats per token`;
  return { text: `${expected}, so the predictions hardly change. ${text}`, isWarning: true };
}

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
export function hasNoEffect({ mode }: Edit, activity: Activity | null): boolean {
  return (mode === "scale" || mode === "ablate") && activity !== null && activity.inPrompt + activity.inText === 0;
}

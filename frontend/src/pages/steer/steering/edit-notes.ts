/** What a card says of its edit: the range of its slider, its strength, and whether it can have an effect. */

import type { ExpertRow, RoutingResponse } from "@/api/types";
import type { SliderTick } from "@/components/ui/slider";
import { type Edit, type EditMode, NEUTRAL_STRENGTH, type StrengthEdit, strengthDigits } from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";
import type { VariantText } from "./texts/generation";

/** Upper end of all sliders: a factor of 8, or 8 units. */
const MAX = 8;
const STEP = 0.1;

export function editScale(mode: StrengthEdit["mode"]) {
  const base = { max: MAX, step: STEP, neutral: NEUTRAL_STRENGTH[mode] };
  const ticks = (...labels: readonly (readonly [number, string])[]): SliderTick[] =>
    labels.map(([at, label]) => ({ at, label }));
  if (mode === "scale")
    return { ...base, min: 0, sign: "×", ticks: ticks([0, "0"], [1, "×1"], [4, "×4"], [MAX, "×8"]) };
  if (mode === "set") return { ...base, min: 0, sign: "=", ticks: ticks([0, "0"], [MAX, "8"]) };
  return { ...base, min: -MAX, sign: "+", ticks: ticks([-MAX, "−8"], [0, "0"], [MAX, "+8"]) };
}

/** Null without an index. */
type Compared = Pick<ExpertRow, "max_activation" | "p99"> | null;

/** Whether the strength alone is above the largest activation in the index, which the model was never seen to reach. */
function exceedsRange(mode: EditMode, strength: number, statistics: Compared): boolean {
  if (statistics === null || (mode !== "add" && mode !== "set")) return false;
  return strength * statistics.p99 > statistics.max_activation;
}

/** Strengths up to here are common for steering, although they often exceed the expert's natural range. */
const COMMON_STRENGTH = 6;

/** Whether the strength is above the natural range and above those common for steering. */
export function isExcessive(mode: EditMode, strength: number, statistics: Compared): boolean {
  return strength > COMMON_STRENGTH && exceedsRange(mode, strength, statistics);
}

/** Mean KL below which an edit hardly changes a text, in nats per token. */
const SMALL_KL = 0.04;

/** The KL that an added strength will cause, if that is little: steerability is the KL at one unit and grows with its square. */
function smallKl(
  mode: EditMode,
  strength: number,
  row: Partial<Pick<ExpertRow, "steerability">> | null,
): number | null {
  if (row?.steerability == null || (mode !== "add" && mode !== "set") || strength === 0) return null;
  const kl = row.steerability * strength ** 2;
  return kl < SMALL_KL ? kl : null;
}

/** The strength as an activation, compared with the expert's largest one in the index, and what to expect of it. */
export function describeStrength(
  mode: EditMode,
  strength: number,
  row: (Compared & Partial<Pick<ExpertRow, "steerability">>) | null,
): string {
  if (row === null || mode === "ablate" || mode === "scale" || !(row.p99 > 0)) return "";
  const activation = `${formatFixed(Math.abs(strength) * row.p99, 1)} (${formatFixed(Math.abs(strength), strengthDigits(strength))} × its 99th percentile)`;
  const change = mode === "set" ? "Sets its activation to" : strength < 0 ? "Subtracts" : "Adds";
  const sentence = `${change} ${activation} on each edited token. The largest in the index is ${formatFixed(row.max_activation, 1)}.`;
  if (isExcessive(mode, strength, row)) return `${sentence} So strong an edit may break the text.`;
  const kl = smallKl(mode, strength, row);
  if (kl !== null)
    return `Low steerability: about ${kl < 0.001 ? "0.001 or less" : Number(kl.toPrecision(1))} nats per token, so the text will hardly change. ${sentence}`;
  return exceedsRange(mode, strength, row)
    ? `${sentence} Steering usually needs more than the natural range.`
    : sentence;
}

/** Whether the card's sentence warns. */
export const isWarned = (mode: EditMode, strength: number, row: ExpertRow | null): boolean =>
  isExcessive(mode, strength, row) || smallKl(mode, strength, row) !== null;

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

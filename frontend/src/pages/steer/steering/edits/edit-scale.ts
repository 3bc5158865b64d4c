/** Slider ranges of an edit, in units of the expert's own statistics. */

import type { ExpertRow } from "@/api/types";
import type { SliderTick } from "@/components/ui/slider";
import { type EditMode, NEUTRAL_STRENGTH, type StrengthEdit } from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";

interface EditScale {
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly neutral: number;
  readonly ticks: readonly SliderTick[];
  readonly sign: string;
}

/** Upper end of all sliders: a factor of 8, or 8 units. */
const MAX = 8;
const STEP = 0.1;

export function editScale(mode: StrengthEdit["mode"]): EditScale {
  const base = { max: MAX, step: STEP, neutral: NEUTRAL_STRENGTH[mode] };
  const zero = { at: 0, label: "0" };
  const times = (at: number) => ({ at, label: `×${at}` });
  if (mode === "scale") return { ...base, min: 0, sign: "×", ticks: [zero, times(1), times(4), times(MAX)] };
  if (mode === "set") return { ...base, min: 0, sign: "=", ticks: [zero, { at: MAX, label: String(MAX) }] };
  return {
    ...base,
    min: -MAX,
    sign: "+",
    ticks: [{ at: -MAX, label: `−${MAX}` }, zero, { at: MAX, label: `+${MAX}` }],
  };
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

/** The strength as an activation, compared with the expert's largest one in the index. */
export function describeStrength(mode: EditMode, strength: number, statistics: Compared): string {
  if (statistics === null || mode === "ablate" || mode === "scale" || !(statistics.p99 > 0)) return "";
  const activation = `${formatFixed(Math.abs(strength) * statistics.p99, 1)} (${formatFixed(Math.abs(strength), 1)} × its 99th percentile)`;
  const change =
    mode === "set"
      ? `Sets its activation to ${activation}`
      : strength < 0
        ? `Subtracts ${activation}`
        : `Adds ${activation}`;
  const sentence = `${change} on each edited token. The largest in the index is ${formatFixed(statistics.max_activation, 1)}.`;
  if (isExcessive(mode, strength, statistics)) return `${sentence} So strong an edit may break the text.`;
  return exceedsRange(mode, strength, statistics)
    ? `${sentence} Steering usually needs more than the natural range.`
    : sentence;
}

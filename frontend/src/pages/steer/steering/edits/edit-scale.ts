/** Slider ranges of an edit, in units of the expert's own statistics. */

import type { ExpertRow } from "@/api/types";
import type { SliderTick } from "@/components/ui/slider";
import { type EditMode, NEUTRAL_STRENGTH } from "@/lib/edits/edits";
import { formatFixed } from "@/lib/text/format";

export interface EditScale {
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

export function editScale(mode: Exclude<EditMode, "ablate">): EditScale {
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
export function exceedsRange(mode: EditMode, strength: number, statistics: Compared): boolean {
  if (statistics === null || (mode !== "add" && mode !== "set")) return false;
  return strength * statistics.p99 > statistics.max_activation;
}

/** The strength as an activation, compared with the expert's largest one in the index. */
export function describeStrength(mode: EditMode, strength: number, statistics: Compared): string {
  if (statistics === null || mode === "ablate" || mode === "scale" || !(statistics.p99 > 0)) return "";
  const [activation, largest] = [Math.abs(strength) * statistics.p99, statistics.max_activation];
  const change = mode === "set" ? "" : strength < 0 ? " less" : " more";
  const sentence = `${formatFixed(activation, 1)}${change} on each edited token; the largest in the index is ${formatFixed(largest, 1)}.`;
  return exceedsRange(mode, strength, statistics) ? `Above the expert’s natural range: ${sentence}` : sentence;
}

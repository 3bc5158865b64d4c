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

export type ExpertStatistics = Pick<ExpertRow, "max_activation" | "p99">;

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

/** The strength as an activation, compared with the expert's maximum. */
export function describeStrength(mode: EditMode, strength: number, statistics: ExpertStatistics | null): string {
  if (statistics === null || mode === "ablate" || mode === "scale" || !(statistics.p99 > 0)) return "";
  const coefficient = formatFixed(Math.abs(strength) * statistics.p99, 1);
  const change = mode === "set" ? "" : strength < 0 ? " less" : " more";
  return `${coefficient}${change} on each edited token; its maximum is ${formatFixed(statistics.max_activation, 1)}.`;
}

/** Number of decimals of the strength, at least one. */
export function strengthDigits(strength: number): number {
  const decimals = String(strength).split(".")[1]?.length ?? 0;
  return Math.min(3, Math.max(1, decimals));
}

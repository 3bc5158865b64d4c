/** Where the slider of an edit begins and ends, tied to the expert's own statistics. */

import type { ExpertRow } from "@/api/types";
import type { SliderTick } from "@/components/slider";
import { type EditMode, NEUTRAL_STRENGTH } from "@/lib/edits";
import { formatFixed } from "@/lib/format";

export interface EditScale {
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly neutral: number;
  readonly ticks: readonly SliderTick[];
  readonly sign: string;
}

export type ExpertStatistics = Pick<ExpertRow, "largest" | "p99">;

/** Full right, on every card: eight times as strong, or eight of the expert's own units. */
const END = 8;
const STEP = 0.1;

export function editScale(mode: Exclude<EditMode, "off">): EditScale {
  const base = { max: END, step: STEP, neutral: NEUTRAL_STRENGTH[mode] };
  const zero = { at: 0, label: "0" };
  const times = (at: number) => ({ at, label: `×${at}` });
  if (mode === "scale") return { ...base, min: 0, sign: "×", ticks: [zero, times(1), times(4), times(END)] };
  if (mode === "set") return { ...base, min: 0, sign: "=", ticks: [zero, { at: END, label: String(END) }] };
  return {
    ...base,
    min: -END,
    sign: "+",
    ticks: [{ at: -END, label: `−${END}` }, zero, { at: END, label: `+${END}` }],
  };
}

/** What the strength comes to as a coefficient, beside the largest that the expert has of itself. */
export function strengthInWords(mode: EditMode, strength: number, statistics: ExpertStatistics | null): string {
  if (statistics === null || mode === "off" || mode === "scale" || !(statistics.p99 > 0)) return "";
  const coefficient = formatFixed(Math.abs(strength) * statistics.p99, 1);
  const change = mode === "set" ? "" : strength < 0 ? " less" : " more";
  return `${coefficient}${change} on every token; its largest is ${formatFixed(statistics.largest, 1)}.`;
}

/** As many decimals as the strength has, at least one. */
export function strengthDigits(strength: number): number {
  const decimals = String(strength).split(".")[1]?.length ?? 0;
  return Math.min(3, Math.max(1, decimals));
}

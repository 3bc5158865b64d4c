/** A density ratio as text: how many times, and the 95 % interval. */

import type { ContrastHit } from "@/api/types";
import { formatCount } from "@/lib/text/format";

export type Side = "a" | "b";

/** A warning if a density rests on a single document; null otherwise. */
export function singleUnit({ units_a, units_b }: ContrastHit["contrast"], unit: string): string | null {
  const sides = [...(units_a === 1 ? ["A"] : []), ...(units_b === 1 ? ["B"] : [])];
  return sides.length === 0 ? null : `only 1 ${unit} in ${sides.join(" and ")}`;
}

/** Two significant digits without an exponent; all digits from 100 on. */
function digits(value: number): string {
  if (value >= 100) return formatCount(Math.round(value));
  const text = value.toPrecision(2);
  return text.includes("e") ? String(Number(text)) : text;
}

/**
 * In the direction in which it is above 1. An expert that is never active in the other text has no finite ratio; only
 * the lower end of the interval is given, which counts half an active token there.
 */
export function ratioText({ ratio, active_a, active_b }: ContrastHit["contrast"], side: Side) {
  const [value, from, to] =
    side === "a" ? [ratio.value, ratio.low, ratio.high] : [1 / ratio.value, 1 / ratio.high, 1 / ratio.low];
  if ((side === "a" ? active_b : active_a) === 0) {
    return { value: `only in ${side.toUpperCase()}`, interval: `× ${digits(from)} or more` };
  }
  return { value: `× ${digits(value)}`, interval: `${digits(from)} to ${digits(to)}` };
}

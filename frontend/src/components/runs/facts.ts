/** Format of the metrics of an evaluation. */

import type { Fact } from "@/api/types";

/** A formatted value; a dash if there is none. */
export function formatFact(value: number | null | undefined, unit: Fact["unit"]): string {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1).replaceAll("-", "−") : value.toFixed(4).replace("-", "−");
}

/** The interval, with the unit behind its upper end; empty if there is none or if both ends read the same. */
export function formatInterval({ low, high, unit }: Fact): string {
  const [from, to] = [formatFact(low, unit), formatFact(high, unit)];
  return low === null || from === to ? "" : `${from.replace(" %", "")} to ${to}`;
}

/** What the benchmark shows: the first run against the other runs and the baselines, with intervals. */

import type { BenchmarkDifference, BenchmarkScore, BenchmarkSubject, BenchmarkSummary } from "@/api/types";
import { formatFixed, formatSigned } from "@/lib/text/format";

/** `1 unit`, `5 units`. */
export const unitsLabel = (units: number) => `${units} ${units === 1 ? "unit" : "units"}`;

/** An end that rounds to zero has a fourth digit, which shows its side. */
const formatEnd = (value: number) => formatSigned(value, Math.abs(value) < 0.0005 && value !== 0 ? 4 : 3);

/** `+0.012 (−0.004 to +0.028)`. */
export function formatDifference({ mean, low, high }: BenchmarkScore): string {
  return `${formatSigned(mean, 3)} (${formatEnd(low)} to ${formatEnd(high)})`;
}

/** Whether the interval is above or below zero. One data set has no interval. */
export function signOf({ low, high }: BenchmarkDifference, datasets: number): "up" | "down" | "no" {
  if (datasets < 2) return "no";
  return low > 0 ? "up" : high < 0 ? "down" : "no";
}

type Sign = ReturnType<typeof signOf>;

/** `2`, `1 or 5`, `1, 5 or 16`. */
function eitherOf(values: readonly number[]): string {
  const last = String(values.at(-1) ?? "");
  return values.length < 2 ? last : `${values.slice(0, -1).join(", ")} or ${last}`;
}

const SIGNS: readonly Sign[] = ["up", "down", "no"];

/** How a comparison ends, e.g. `ours is better with 1 unit; no clear difference with 5 or 16 units`. */
function compared(first: BenchmarkSubject, other: BenchmarkSubject, { differences, datasets }: BenchmarkSummary) {
  const isPlural = other.kind === "neurons";
  const ends = {
    up: `${first.name} is better`,
    down: `the ${isPlural ? "neurons are" : other.kind === "run" ? "other is" : "random gate is"} better`,
    no: "no clear difference",
  };
  const found = differences.filter((one) => one.subject === other.name);
  return SIGNS.flatMap((sign) => {
    const units = found.filter((one) => signOf(one, datasets.length) === sign).map((one) => one.units);
    return units.length === 0 ? [] : [`${ends[sign]} with ${eitherOf(units)} ${units.at(-1) === 1 ? "unit" : "units"}`];
  }).join("; ");
}

/** What differences the sample resolves. */
function resolution({ differences, datasets }: BenchmarkSummary): string {
  if (datasets.length < 2) return "One data set gives no interval, so no difference is claimed.";
  const widths = differences.map(({ low, high }) => (high - low) / 2);
  const [narrow, wide] = [Math.min(...widths), Math.max(...widths)].map((width) => `±${formatFixed(width, 3)}`);
  const range = narrow === wide ? narrow : `${narrow} to ${wide}`;
  return `The 95 % intervals over ${datasets.length} data sets are ${range}, so smaller differences can be missed.`;
}

export interface BenchmarkVerdict {
  readonly title: string;
  /** One per other subject. */
  readonly comparisons: readonly string[];
  readonly resolution: string;
}

export function benchmarkVerdict(summary: BenchmarkSummary): BenchmarkVerdict {
  const { subjects, differences, datasets } = summary;
  const [first, ...others] = subjects;
  const count = (sign: Sign) => differences.filter((one) => signOf(one, datasets.length) === sign).length;
  const name = first?.name ?? "";
  return {
    title: `${name} is better in ${count("up")} of ${differences.length} comparisons, worse in ${count("down")}, and not clearly different in ${count("no")}`,
    comparisons: others.map((other) => `${other.name}: ${first === undefined ? "" : compared(first, other, summary)}.`),
    resolution: resolution(summary),
  };
}

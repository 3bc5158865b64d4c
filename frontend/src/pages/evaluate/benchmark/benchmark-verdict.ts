/** What the benchmark shows: the first run against the other runs and the baselines, with intervals. */

import type { BenchmarkDifference, BenchmarkScore, BenchmarkSubject, BenchmarkSummary } from "@/api/types";
import { formatEnd, formatFixed, formatSigned } from "@/lib/text/format";

/** `1 unit`, `5 units`. */
export const unitsLabel = (units: number) => `${units} ${units === 1 ? "unit" : "units"}`;

/** `+0.012 (−0.004 to +0.028)`. */
export function formatDifference({ mean, low, high }: BenchmarkScore): string {
  return `${formatSigned(mean, 3)} (${formatEnd(low, 3)} to ${formatEnd(high, 3)})`;
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

/** Bootstrap intervals over fewer data sets are too narrow. */
const FEW_DATASETS = 20;

/** What differences the sample resolves. */
function resolution({ differences, datasets }: BenchmarkSummary): string {
  if (datasets.length < 2) return "One data set gives no interval, so no difference is claimed.";
  const widths = differences.map(({ low, high }) => (high - low) / 2);
  const [narrow, wide] = [Math.min(...widths), Math.max(...widths)].map((width) => `±${formatFixed(width, 3)}`);
  const range = narrow === wide ? narrow : `${narrow} to ${wide}`;
  const few =
    datasets.length < FEW_DATASETS ? " With so few data sets, an interval that just excludes zero proves little." : "";
  return `The 95 % intervals over ${datasets.length} data sets are ${range}, so smaller differences can be missed.${few}`;
}

/** Share of 95 % intervals that exclude zero by chance. */
const BY_CHANCE = 0.05;

/** Probability that at least this many of `n` intervals exclude zero by chance, if they were independent. */
function chanceOf(clear: number, n: number): number {
  let [term, below] = [(1 - BY_CHANCE) ** n, 0];
  for (let count = 0; count < clear; count += 1) {
    below += term;
    term *= ((n - count) / (count + 1)) * (BY_CHANCE / (1 - BY_CHANCE));
  }
  return 1 - below;
}

/** How often the first run is better or worse, unless chance alone explains as many differences. */
function titleOf(name: string, up: number, down: number, n: number): string {
  const clear = up + down;
  if (clear === 0) return `${name} does not differ clearly from the others in any of ${n} comparisons`;
  if (chanceOf(clear, n) > BY_CHANCE) {
    return `No difference of ${name} stands out: ${clear} of ${n} intervals ${clear === 1 ? "excludes" : "exclude"} zero, which chance alone can explain`;
  }
  return `${name} is better in ${up} of ${n} comparisons, worse in ${down}, and not clearly different in ${n - clear}`;
}

export interface BenchmarkVerdict {
  readonly title: string;
  /** One per other subject, the baselines first. */
  readonly comparisons: readonly string[];
  readonly resolution: string;
}

export function benchmarkVerdict(summary: BenchmarkSummary): BenchmarkVerdict {
  const { subjects, differences, datasets } = summary;
  const [first, ...others] = subjects;
  const count = (sign: Sign) => differences.filter((one) => signOf(one, datasets.length) === sign).length;
  const baselinesFirst = others.toSorted((a, b) => Number(a.kind === "run") - Number(b.kind === "run"));
  return {
    title: titleOf(first?.name ?? "", count("up"), count("down"), differences.length),
    comparisons: baselinesFirst.map(
      (other) => `${other.name}: ${first === undefined ? "" : compared(first, other, summary)}.`,
    ),
    resolution: resolution(summary),
  };
}

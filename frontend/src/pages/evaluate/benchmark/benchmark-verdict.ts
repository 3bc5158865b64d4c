/** What the benchmark shows: the first run against the other runs and the baselines, with intervals. */

import type { BenchmarkDifference, BenchmarkScore, BenchmarkSubject, BenchmarkSummary } from "@/api/types";
import { formatSigned } from "@/lib/text/format";

/** Units per probe that the verdict is about, if the benchmark has probes of this size. */
const VERDICT_UNITS = 5;

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

/** Runs have names; baselines are described. */
const withArticle = ({ name, kind }: BenchmarkSubject) => (kind === "run" ? name : `the ${name}`);

function separates(subject: BenchmarkSubject, other: BenchmarkSubject): string {
  const name = withArticle(subject);
  const isSentence = subject.kind === "run" ? name : name.replace(/^t/, "T");
  return `${isSentence} ${subject.kind === "neurons" ? "separate" : "separates"} the classes better than ${withArticle(other)}`;
}

function compared(first: BenchmarkSubject, other: BenchmarkSubject, sign: "up" | "down" | "no"): string {
  if (sign === "up") return separates(first, other);
  if (sign === "down") return separates(other, first);
  return `No clear difference between ${first.name} and ${withArticle(other)}`;
}

/** How a comparison ends with the other probe sizes, e.g. `no clear difference at 1 unit`. */
function otherSizes(
  names: readonly [string, string],
  others: readonly BenchmarkDifference[],
  datasets: number,
): string {
  const ends = { up: `${names[0]} is better`, down: `${names[1]} is better`, no: "no clear difference" } as const;
  const texts = others.map((one) => {
    return `${ends[signOf(one, datasets)]} at ${unitsLabel(one.units)}: ${formatDifference(one)}`;
  });
  return texts.length === 0 ? "" : ` Other sizes: ${texts.join("; ")}.`;
}

/** What is compared, then one sentence per other subject. */
export function benchmarkVerdict({ settings, subjects, differences, datasets }: BenchmarkSummary): readonly string[] {
  const [first, ...others] = subjects;
  const units = settings.units.includes(VERDICT_UNITS) ? VERDICT_UNITS : Math.min(...settings.units);
  if (first === undefined) return [];
  const sentences = others.flatMap((other) => {
    const found = differences.filter((one) => one.subject === other.name);
    const difference = found.find((one) => one.units === units);
    if (difference === undefined) return [];
    const sizes = otherSizes(
      [first.name, withArticle(other)],
      found.filter((one) => one !== difference),
      datasets.length,
    );
    return [`${compared(first, other, signOf(difference, datasets.length))}: ${formatDifference(difference)}.${sizes}`];
  });
  const [data, probes] = [datasets.length === 1 ? "data set" : "data sets", unitsLabel(units)];
  const meaning = `ROC-AUC of ${first.name} minus the other’s, mean and 95 % interval over ${datasets.length} ${data}, ${probes} per probe.`;
  return [meaning, ...sentences];
}

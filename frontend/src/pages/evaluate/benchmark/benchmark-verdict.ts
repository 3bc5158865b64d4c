/** What the benchmark shows: the first run against the other runs and the baselines, with intervals. */

import type { BenchmarkDifference, BenchmarkSubject, BenchmarkSummary } from "@/api/types";
import { formatSigned } from "@/lib/text/format";

/** Units per probe that the verdict is about, if the benchmark has probes of this size. */
const VERDICT_UNITS = 5;

/** `1 unit`, `5 units`. */
export const unitsLabel = (units: number) => `${units} ${units === 1 ? "unit" : "units"}`;

/** An end that rounds to zero has a fourth digit, which shows its side. */
const formatEnd = (value: number) => formatSigned(value, Math.abs(value) < 0.0005 && value !== 0 ? 4 : 3);

/** `+0.012 (−0.004 to +0.028)`. */
export function formatDifference({ mean, low, high }: BenchmarkDifference): string {
  return `${formatSigned(mean, 3)} (${formatEnd(low)} to ${formatEnd(high)})`;
}

/** Whether the interval is above or below zero. One data set has no interval. */
export function signOf({ low, high }: BenchmarkDifference, datasets: number): "up" | "down" | "no" {
  if (datasets < 2) return "no";
  return low > 0 ? "up" : high < 0 ? "down" : "no";
}

/** Ends of a comparison at another size, if there is no clear difference at the verdict's size. */
const ENDS = { up: "the first is better", down: "the other is better" } as const;

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

/** How the same comparison ends with the other probe sizes, e.g. `the same at 1 unit; none at 16 units`. */
function otherSizes(found: BenchmarkDifference, others: readonly BenchmarkDifference[], datasets: number): string {
  const sign = signOf(found, datasets);
  const texts = others.map((one) => {
    const other = signOf(one, datasets);
    const kind =
      other === sign
        ? "the same"
        : other === "no"
          ? "no clear difference"
          : sign === "no"
            ? ENDS[other]
            : "the reverse";
    return `${kind} at ${unitsLabel(one.units)}: ${formatDifference(one)}`;
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
      difference,
      found.filter((one) => one !== difference),
      datasets.length,
    );
    return [`${compared(first, other, signOf(difference, datasets.length))}: ${formatDifference(difference)}.${sizes}`];
  });
  const [data, probes] = [datasets.length === 1 ? "data set" : "data sets", unitsLabel(units)];
  const meaning = `ROC-AUC of ${first.name} minus the other’s, mean and 95 % interval over ${datasets.length} ${data}, ${probes} per probe.`;
  return [meaning, ...sentences];
}

/** The verdict on a graph: how far the changes that it predicts were measured when its experts were ablated. */

import type { CircuitResponse } from "@/api/types";
import { formatFixed, formatPercent } from "@/lib/text/format";

export interface Agreement {
  readonly correlation: number | null;
  readonly correlation_without_largest: number | null;
  readonly same_sign: number | null;
  readonly slope: number | null;
}

export type Level = "good" | "weak" | "bad";

export interface Figure {
  readonly name: string;
  readonly value: string;
  readonly note: string;
}

export interface Verdict {
  readonly level: Level;
  readonly headline: string;
  /** Orders graphs of one level: the lower end of the interval of the share of right directions. */
  readonly reliability: number;
  /** Number of ablated experts. */
  readonly checked: number;
  readonly figures: readonly Figure[];
}

/** Fewest experts for which the server computes a correlation. */
const MIN_CORRELATED = 5;

/** Below this correlation, a graph is not to be relied on. */
const MIN_CORRELATION = 0.3;

/** Below this share of right directions, a graph is not to be relied on. */
const MIN_SAME_SIGN = 0.65;

/** Above this share of influence that begins in neither tokens nor experts, no verdict is good. */
const MAX_UNEXPLAINED = 0.5;

const HEADLINES: Readonly<Record<Level, string>> = {
  good: "Predicted expert effects hold on this prompt",
  weak: "Predicted expert effects hold only in part",
  bad: "Do not rely on this graph: its predictions fail in direction and size",
};
const DIRECTIONS_FAIL = "Do not rely on this graph: the directions that it predicts are often wrong";
const SIZES_FAIL = "Do not rely on this graph: the sizes that it predicts do not correlate with the measured ones";

const MAYBE_CHANCE = "Weak evidence: the directions may be right by chance";

/** 95 % interval of a correlation over n pairs, by Fisher’s transformation. */
export function correlationInterval(r: number, n: number): readonly [number, number] {
  const half = 1.96 / Math.sqrt(Math.max(1, n - 3));
  const z = Math.atanh(Math.min(0.9999, Math.max(-0.9999, r)));
  return [Math.tanh(z - half), Math.tanh(z + half)];
}

/** 95 % Wilson interval of a share of n. */
export function shareInterval(share: number, n: number): readonly [number, number] {
  const z2 = 1.96 ** 2;
  const centre = share + z2 / (2 * n);
  const half = 1.96 * Math.sqrt((share * (1 - share)) / n + z2 / (4 * n ** 2));
  return [(centre - half) / (1 + z2 / n), (centre + half) / (1 + z2 / n)];
}

/**
 * The limits are conventions of this program, not a standard of the field; the glossary states them (`circuit_verdict`).
 * "Good" asks for a correlation that explains about a third of the variance, and for sizes right within a factor of two.
 */
function levelOf({ correlation, same_sign, slope }: Agreement): Level {
  if (correlation === null || same_sign === null || slope === null) return "weak";
  if (correlation >= 0.6 && same_sign >= 0.75 && slope >= 0.5 && slope <= 2) return "good";
  return correlation >= MIN_CORRELATION && same_sign >= MIN_SAME_SIGN ? "weak" : "bad";
}

type Origins = CircuitResponse["graph"]["origins"];

/** Null for files without it. */
export function unexplainedShare(origins: Origins): number | null {
  return Object.keys(origins).length === 0 ? null : (origins.mlp ?? 0) + (origins.error ?? 0);
}

/** The headline of a level; for a bad graph, the one criterion that it fails. */
function levelHeadline(level: Level, { correlation, same_sign }: Agreement, isMaybeChance: boolean): string {
  if (level === "weak" && isMaybeChance) return MAYBE_CHANCE;
  if (level === "bad" && (correlation ?? 0) >= MIN_CORRELATION) return DIRECTIONS_FAIL;
  if (level === "bad" && (same_sign ?? 0) >= MIN_SAME_SIGN) return SIZES_FAIL;
  return HEADLINES[level];
}

function withUnexplained(level: Level, headline: string, share: number | null): string {
  if (share === null) return `${headline}, the unexplained share is unknown`;
  if (share <= MAX_UNEXPLAINED) return headline;
  return `${headline}, ${level === "good" ? "but" : "and"} ${formatPercent(share, 0)} % of the influence is unexplained`;
}

/** Change of r above which the verdict names the one expert that it depends on. */
const LARGE_CHANGE = 0.2;

/** A headline and the figures behind it, or null if nothing was measured. */
export function verdict(agreement: Agreement, checked: number, experts: number, origins: Origins): Verdict | null {
  const { correlation, correlation_without_largest: withoutLargest, same_sign, slope } = agreement;
  if (checked === 0 || same_sign === null) return null;
  const level = levelOf(agreement);
  const share = unexplainedShare(origins);
  const some =
    checked < experts ? `the ${checked} most influential of its ${experts} experts` : `its ${experts} experts`;
  const [low, high] = correlation === null ? [0, 0] : correlationInterval(correlation, checked);
  const dependsOnOne =
    correlation !== null && withoutLargest !== null && Math.abs(correlation - withoutLargest) > LARGE_CHANGE;
  const others = dependsOnOne ? `. ${formatFixed(withoutLargest)} without the largest predicted change` : "";
  const [lowShare, highShare] = shareInterval(same_sign, checked);
  const percent = (share: number) => `${formatPercent(share, 0)}\u00a0%`;
  const tooFew = `needs at least ${MIN_CORRELATED} experts`;
  return {
    level: level === "good" && (share ?? 1) > MAX_UNEXPLAINED ? "weak" : level,
    headline: withUnexplained(level, levelHeadline(level, agreement, lowShare <= 0.5), share),
    reliability: lowShare,
    checked,
    figures: [
      {
        name: "Direction",
        value: `${percent(same_sign)} right`,
        note: `of ${some}, ablated one at a time. 95\u00a0% interval ${percent(lowShare)} to ${percent(highShare)}; 50\u00a0% is chance`,
      },
      {
        name: "Correlation",
        value: correlation === null ? "–" : `r = ${formatFixed(correlation)}`,
        note: correlation === null ? tooFew : `95\u00a0% interval ${formatFixed(low)} to ${formatFixed(high)}${others}`,
      },
      {
        name: "Slope",
        value: slope === null ? "–" : formatFixed(slope),
        note: slope === null ? tooFew : "measured per predicted change. 1 is exact",
      },
    ],
  };
}

/** The share of the influence that begins in neither tokens nor experts, and what lowers it; null if it is unknown. */
export function unexplained(origins: Origins): Figure | null {
  const share = unexplainedShare(origins);
  if (share === null) return null;
  const { mlp = 0, error = 0 } = origins;
  const remedy = mlp >= error ? "Train runs for more layers to lower it" : "Train more accurate runs to lower it";
  const parts = `${formatPercent(mlp, 1)} % in MLPs without a run, ${formatPercent(error, 1)} % in error nodes`;
  return {
    name: "Unexplained",
    value: `${formatPercent(share, 0)} %`,
    note: `of the influence begins in neither tokens nor experts: ${parts}. ${remedy}`,
  };
}

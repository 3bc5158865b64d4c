/** The verdict on a graph: how far the changes that it predicts were measured when its experts were ablated. */

import type { CircuitNode, CircuitResponse } from "@/api/types";
import { formatFixed, formatPercent } from "@/lib/text/format";

/** Changes of the logit by node id, of the nodes that were ablated one at a time. */
export type MeasuredEffects = ReadonlyMap<string, number>;

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
  readonly figures: readonly Figure[];
}

export interface LayerCheck {
  readonly layer: number;
  readonly experts: number;
  /** Share of the predicted change that was measured in its direction; negative if most went the other way. */
  readonly share: number;
}

/** Fewest experts for which the server computes a correlation. */
const MIN_CORRELATED = 5;

/** Below this share of right directions, a graph is not to be relied on. */
const MIN_SAME_SIGN = 0.65;

/** A layer below this share is faded. */
const MIN_SHARE = 0.25;

const HEADLINES: Readonly<Record<Level, string>> = {
  good: "The graph’s predictions hold on this prompt",
  weak: "Read this graph with caution",
  bad: "Do not rely on this graph",
};

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
  return correlation >= 0.3 && same_sign >= MIN_SAME_SIGN ? "weak" : "bad";
}

/** Change of r above which the verdict names the one expert that it depends on. */
const LARGE_CHANGE = 0.2;

/** A headline and the figures behind it, or null if nothing was measured. */
export function verdict(agreement: Agreement, checked: number, experts: number): Verdict | null {
  const { correlation, correlation_without_largest: withoutLargest, same_sign, slope } = agreement;
  if (checked === 0 || same_sign === null) return null;
  const level = levelOf(agreement);
  const some =
    checked < experts ? `the ${checked} most influential of its ${experts} experts` : `its ${experts} experts`;
  const [low, high] = correlation === null ? [0, 0] : correlationInterval(correlation, checked);
  const dependsOnOne =
    correlation !== null && withoutLargest !== null && Math.abs(correlation - withoutLargest) > LARGE_CHANGE;
  const others = dependsOnOne ? `. ${formatFixed(withoutLargest)} without the largest predicted change` : "";
  const [lowShare, highShare] = shareInterval(same_sign, checked);
  const percent = (share: number) => `${formatPercent(share, 0)} %`;
  const tooFew = `needs at least ${MIN_CORRELATED} experts`;
  return {
    level,
    headline: level === "weak" && lowShare <= 0.5 ? MAYBE_CHANCE : HEADLINES[level],
    figures: [
      {
        name: "Direction",
        value: `${percent(same_sign)} right`,
        note: `of ${some}, ablated one at a time. 95 % interval ${percent(lowShare)} to ${percent(highShare)}; 50 % is chance`,
      },
      {
        name: "Correlation",
        value: correlation === null ? "–" : `r = ${formatFixed(correlation)}`,
        note: correlation === null ? tooFew : `95 % interval ${formatFixed(low)} to ${formatFixed(high)}${others}`,
      },
      {
        name: "Slope",
        value: slope === null ? "–" : formatFixed(slope),
        note: slope === null ? tooFew : "measured change per predicted change. 1 is exact",
      },
    ],
  };
}

/** The share of the influence that begins in neither tokens nor experts, and what lowers it; null if it is unknown. */
export function unexplained(origins: CircuitResponse["graph"]["origins"]): Figure | null {
  if (Object.keys(origins).length === 0) return null;
  const { mlp = 0, error = 0 } = origins;
  const remedy = mlp >= error ? "Train runs for more layers to lower it" : "Train more accurate runs to lower it";
  const parts = `${formatPercent(mlp, 1)} % in MLPs without a run, ${formatPercent(error, 1)} % in error nodes`;
  return {
    name: "Unexplained",
    value: `${formatPercent(mlp + error, 0)} %`,
    note: `of the influence begins in neither tokens nor experts: ${parts}. ${remedy}`,
  };
}

/** Sentence that compares a measured effect with the predicted one. */
export function comparison(predicted: number, measured: number): string {
  if (predicted * measured < 0) return "The measured effect has the opposite sign.";
  if (predicted === 0) return "The graph predicts no effect.";
  return `The measured effect has the predicted sign and ${formatPercent(measured / predicted, 0)} % of its size.`;
}

/** How much of each layer's predicted change was measured, from the first layer to the last. */
export function checkLayers({ graph, ids }: CircuitResponse, measured: MeasuredEffects): readonly LayerCheck[] {
  const layers = new Map<number, { experts: number; predicted: number; found: number }>();
  graph.nodes.forEach((node: CircuitNode, index) => {
    const change = measured.get(ids[index] ?? "");
    if (change === undefined || node.layer === null) return;
    const { experts, predicted, found } = layers.get(node.layer) ?? { experts: 0, predicted: 0, found: 0 };
    layers.set(node.layer, {
      experts: experts + 1,
      predicted: predicted + Math.abs(node.effect),
      found: found - change * Math.sign(node.effect),
    });
  });
  return [...layers]
    .sort(([a], [b]) => a - b)
    .map(([layer, { experts, predicted, found }]) => ({
      layer,
      experts,
      share: predicted === 0 ? 0 : found / predicted,
    }));
}

export const isWeak = ({ share }: LayerCheck) => share < MIN_SHARE;

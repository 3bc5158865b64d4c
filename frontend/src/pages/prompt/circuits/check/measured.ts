/** Measured effects beside predicted ones: of single experts, and summed over layers. */

import type { CircuitNode, CircuitResponse } from "@/api/types";
import { formatFixed, formatPercent } from "@/lib/text/format";

/** Changes of the logit by node id, of the nodes that were ablated one at a time. */
export type MeasuredEffects = ReadonlyMap<string, number>;

export interface LayerCheck {
  readonly layer: number;
  readonly experts: number;
  /** Share of the predicted change that was measured in its direction; negative if most went the other way. */
  readonly share: number;
}

/** A layer below this share is faded. */
const MIN_SHARE = 0.25;

/** Sizes that differ by more than this factor are marked. */
const MAX_FACTOR = 3;

/** Sentence that compares a measured effect with the predicted one. */
export function comparison(predicted: number, measured: number): string {
  if (predicted * measured < 0) return "The measured effect has the opposite sign.";
  if (predicted === 0) return "The graph predicts no effect.";
  return `The measured effect has the predicted sign and ${formatFixed(measured / predicted, 2)} times its size.`;
}

/** `≠` for a measured effect of the opposite sign, `×4.2` for one of another size; null for one as predicted. */
export function mismatch({ effect }: Pick<CircuitNode, "effect">, change: number | undefined): string | null {
  if (change === undefined || effect === 0) return null;
  const factor = -change / effect;
  if (factor < 0) return "≠";
  if (factor <= MAX_FACTOR && factor >= 1 / MAX_FACTOR) return null;
  return `×${formatFixed(factor, factor < 1 ? 2 : 1)}`;
}

/** Badge of a box, and the same as text; null if ablation contradicts none of its experts. */
export interface Contradiction {
  readonly badge: string;
  readonly text: string;
}

/**
 * What ablation contradicts in a box of one node or several.
 *
 * @param members - indices of the nodes
 */
export function contradiction(
  { graph, ids }: CircuitResponse,
  members: readonly number[],
  measured: MeasuredEffects,
): Contradiction | null {
  const marks = members.flatMap((member) => {
    const node = graph.nodes[member];
    return node?.kind === "expert" ? (mismatch(node, measured.get(ids[member] ?? "")) ?? []) : [];
  });
  const [first] = marks;
  if (first === undefined) return null;
  if (members.length > 1) return { badge: `${marks.length} ≠`, text: `${marks.length} contradicted by ablation` };
  return { badge: first, text: first === "≠" ? "measured opposite sign" : `measured ${first}` };
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

/** For example `layer 22, 12 %`, a share of the prediction. */
export function describeLayer({ layer, share }: LayerCheck): string {
  return `layer ${layer}, ${share < 0 ? "opposite sign" : `${formatPercent(share, 0)} %`}`;
}

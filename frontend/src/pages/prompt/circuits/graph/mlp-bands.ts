/** Bands of layers without a run: their MLPs are shown as one node per token, because they are not interpreted. */

import type { CircuitGraph, CircuitNode } from "@/api/types";

export interface MlpBand {
  readonly first: number;
  readonly last: number;
}

/** The layers without a run around a layer, as far as the graph has nodes in them; null for a layer with a run. */
export function mlpBand({ layers, nodes }: CircuitGraph, layer: number): MlpBand | null {
  if (layers.includes(layer)) return null;
  const below = Math.max(-1, ...layers.filter((trained) => trained < layer));
  const above = Math.min(Infinity, ...layers.filter((trained) => trained > layer));
  const inside = nodes.flatMap((node) =>
    node.layer !== null && node.layer > below && node.layer < above ? [node.layer] : [],
  );
  return { first: Math.min(layer, ...inside), last: Math.max(layer, ...inside) };
}

export const bandName = ({ first, last }: MlpBand) => (first === last ? `Layer ${first}` : `Layers ${first}–${last}`);

/** One node for all: the most influential, with the sums of their contributions. MLPs feed each other through no edge. */
export function mergedNode(nodes: readonly CircuitNode[]): CircuitNode | undefined {
  const [first] = nodes;
  const sum = (key: "influence" | "direct" | "effect") => nodes.reduce((total, node) => total + node[key], 0);
  return first && { ...first, influence: sum("influence"), direct: sum("direct"), effect: sum("effect") };
}

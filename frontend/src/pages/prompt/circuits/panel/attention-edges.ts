/** Edges of a node that attention carried from one token to another. */

import type { CircuitResponse } from "@/api/types";
import type { ShownNode } from "@/pages/prompt/circuits/graph/shown-graph";

export interface AttentionEdge {
  /** Indices of the graph's nodes. */
  readonly source: number;
  readonly target: number;
  readonly weight: number;
}

const MAX_EDGES = 5;

/** Most influential first. Edges into the node come before those out of it. */
export function attentionEdges({ graph }: CircuitResponse, { members }: ShownNode): readonly AttentionEdge[] {
  const between = graph.edges.filter(
    ({ source, target }) => graph.nodes[source]?.position !== graph.nodes[target]?.position,
  );
  const into = between.filter(({ target }) => members.includes(target));
  const outOf = between.filter(({ source, target }) => members.includes(source) && !members.includes(target));
  return [...into, ...outOf].slice(0, MAX_EDGES);
}

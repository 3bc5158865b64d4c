/** Names of circuit nodes and edges. */

import type { CircuitGraph, CircuitNode, CircuitResponse, RoutedExpertInfo } from "@/api/types";
import { formatSigned } from "@/lib/text/format";
import { visibleText } from "@/lib/text/token-text";
import { type ChosenExpert, chosenKey } from "@/pages/prompt/circuits/circuit-params";

export interface NodeEdge {
  readonly index: number;
  readonly weight: number;
  readonly influence: number;
}

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
}

/** For example `Expert 560, layer 3, on ␣girl`. */
export function nodeName(graph: CircuitGraph, node: CircuitNode): string {
  const on = tokenText(graph, node.position);
  switch (node.kind) {
    case "target":
      return `Next token ${visibleText(graph.target.text)}`;
    case "expert":
      return `Expert ${node.expert ?? ""}, layer ${node.layer ?? ""}, on ${on}`;
    case "error":
      return `Error node of layer ${node.layer ?? ""} on ${on}`;
    case "mlp":
      return `MLP of layer ${node.layer ?? ""} on ${on}`;
    case "embedding":
      return `Token ${on}`;
  }
}

/** The expert of a node; null for other kinds of nodes. */
export function nodeExpert(node: CircuitNode): ChosenExpert | null {
  if (node.expert === null || node.layer === null) return null;
  return { position: node.position, layer: node.layer, expert: node.expert };
}

export function nodeExpertInfo(response: CircuitResponse, node: CircuitNode): RoutedExpertInfo | undefined {
  if (node.run === null || node.expert === null) return undefined;
  return response.experts[node.run]?.[node.expert];
}

/** Incoming or outgoing edges, most influential first. */
export function nodeEdges(graph: CircuitGraph, index: number, direction: "in" | "out"): readonly NodeEdge[] {
  const [here, there] = direction === "in" ? (["target", "source"] as const) : (["source", "target"] as const);
  return graph.edges
    .filter((edge) => edge[here] === index)
    .map((edge) => ({ index: edge[there], weight: edge.weight, influence: edge.influence }));
}

/** The selected experts that are in the graph, in the graph's order. */
export function chosenNodes(graph: CircuitGraph, chosen: readonly ChosenExpert[]): readonly CircuitNode[] {
  const keys = new Set(chosen.map(chosenKey));
  return graph.nodes.filter((node) => {
    const expert = nodeExpert(node);
    return expert !== null && keys.has(chosenKey(expert));
  });
}

export const signClass = (value: number) => (value < 0 ? "down" : "up");
export const sign = (value: number) => (value < 0 ? "−" : "+");

/** Accessible name: the node's name and effect. */
export function accessibleName(graph: CircuitGraph, node: CircuitNode): string {
  const share = `${(100 * node.influence).toFixed(1)} % of the influence`;
  if (node.kind === "target") return `${nodeName(graph, node)}, logit ${node.direct.toFixed(2)} above the mean`;
  return `${nodeName(graph, node)}, ${share}, effect ${formatSigned(node.effect, 2)}`;
}

/** What nodes and edges of a circuit are called. */

import type { CircuitGraph, CircuitNode, CircuitResponse, RoutedExpertInfo } from "@/api/types";
import { formatSigned } from "@/lib/format";
import { visibleText } from "@/lib/token-text";

import { type ChosenExpert, chosenKey } from "./circuit-params";

export interface KnownEdge {
  readonly index: number;
  readonly weight: number;
  readonly influence: number;
}

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
}

/** `Expert 560, layer 3, on ␣girl`. */
export function nodeName(graph: CircuitGraph, node: CircuitNode): string {
  const on = tokenText(graph, node.position);
  switch (node.kind) {
    case "target":
      return `Next token ${visibleText(graph.target.text)}`;
    case "expert":
      return `Expert ${node.expert ?? ""}, layer ${node.layer ?? ""}, on ${on}`;
    case "error":
      return `What layer ${node.layer ?? ""} misses on ${on}`;
    case "mlp":
      return `MLP of layer ${node.layer ?? ""} on ${on}`;
    case "embedding":
      return `Token ${on}`;
  }
}

/** The expert that a node is, as the address names it; null for what is none. */
export function expertOf(node: CircuitNode): ChosenExpert | null {
  if (node.expert === null || node.layer === null) return null;
  return { position: node.position, layer: node.layer, expert: node.expert };
}

export function infoOf(response: CircuitResponse, node: CircuitNode): RoutedExpertInfo | undefined {
  if (node.run === null || node.expert === null) return undefined;
  return response.experts[node.run]?.[node.expert];
}

/** What comes in, or goes out, most influential first. */
export function edgesOf(graph: CircuitGraph, index: number, way: "in" | "out"): readonly KnownEdge[] {
  const [here, there] = way === "in" ? (["target", "source"] as const) : (["source", "target"] as const);
  return graph.edges
    .filter((edge) => edge[here] === index)
    .map((edge) => ({ index: edge[there], weight: edge.weight, influence: edge.influence }));
}

/** The chosen experts that are in the graph, in its order. */
export function chosenNodes(graph: CircuitGraph, chosen: readonly ChosenExpert[]): readonly CircuitNode[] {
  const keys = new Set(chosen.map(chosenKey));
  return graph.nodes.filter((node) => {
    const expert = expertOf(node);
    return expert !== null && keys.has(chosenKey(expert));
  });
}

export const side = (value: number) => (value < 0 ? "down" : "up");
export const sign = (value: number) => (value < 0 ? "−" : "+");

/** What is read out of a node: its name, and what it does. */
export function spokenName(graph: CircuitGraph, node: CircuitNode): string {
  const share = `${(100 * node.influence).toFixed(1)} % of the influence`;
  if (node.kind === "target") return `${nodeName(graph, node)}, logit ${node.direct.toFixed(2)} above the mean`;
  return `${nodeName(graph, node)}, ${share}, effect ${formatSigned(node.effect, 2)}`;
}

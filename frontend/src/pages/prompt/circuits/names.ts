/** Names of circuit nodes. */

import type { CircuitGraph, CircuitNode, CircuitResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { formatFixed } from "@/lib/text/format";
import { splitLeadingSpace, visibleText } from "@/lib/text/token-text";

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
}

type CircuitExpert = CircuitResponse["experts"][string][string];

export function expertInfo(response: CircuitResponse, node: CircuitNode): CircuitExpert | undefined {
  return node.run === null || node.expert === null ? undefined : response.experts[node.run]?.[node.expert];
}

/** In its box: the id with its label, else with the token that it promotes, else with the one it fires on most. */
export function boxName(response: CircuitResponse, node: CircuitNode): string {
  if (node.kind === "target") return response.graph.label;
  const info = expertInfo(response, node);
  const quoted = (token: string) => `“${visibleText(splitLeadingSpace(token).body)}”`;
  const label = info?.label ?? shownAutomatic(info?.automatic)?.label;
  if (label !== undefined) return `${node.expert} ${label}`;
  if (info?.promoted != null) return `${node.expert} → ${quoted(info.promoted)}`;
  const [token] = info?.top_tokens ?? [];
  return token === undefined ? `Expert ${node.expert}` : `${node.expert} ${quoted(token)}`;
}

/** For example `Expert 560, layer 3, on ␣little`. */
export function nodeName({ graph }: CircuitResponse, node: CircuitNode): string {
  if (node.kind === "target") return `Target: ${graph.label}`;
  return `Expert ${node.expert}, layer ${node.layer}, on ${tokenText(graph, node.position)}`;
}

/** An ablation that lowers the target means that the node supports it. */
export const signClass = (change: number) => (change < 0 ? "up" : "down");

/** What an expert does to the target, from the change when it is ablated: `supports 0.47`, `opposes 0.77`. */
export function effectText(change: number, digits = 2): string {
  const size = formatFixed(Math.abs(change), digits);
  return Number(size) === 0 ? size : `${change < 0 ? "supports" : "opposes"} ${size}`;
}

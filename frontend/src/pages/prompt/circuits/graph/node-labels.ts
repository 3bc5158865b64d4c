/** Names of circuit nodes. */

import type { CircuitGraph, CircuitNode, CircuitResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { formatPercent, formatSigned } from "@/lib/text/format";
import { firesOn, splitLeadingSpace, visibleText } from "@/lib/text/token-text";

import { bandName, mlpBand } from "./mlp-bands";
import type { ShownNode } from "./shown-graph";

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
}

export type CircuitExpert = CircuitResponse["experts"][string][string];

export function nodeExpertInfo(response: CircuitResponse, node: CircuitNode): CircuitExpert | undefined {
  if (node.run === null || node.expert === null) return undefined;
  return response.experts[node.run]?.[node.expert];
}

function expertLabel(response: CircuitResponse, node: CircuitNode): string | undefined {
  const info = nodeExpertInfo(response, node);
  return info?.label ?? shownAutomatic(info?.automatic)?.label;
}

/** The expert's id with its label, else with the token that it promotes most, else with the one it fires on most. */
function expertName(response: CircuitResponse, node: CircuitNode): string {
  const label = expertLabel(response, node);
  if (label !== undefined) return `${node.expert}, ${label}`;
  const info = nodeExpertInfo(response, node);
  if (info?.promoted != null) return `${node.expert}, promotes “${visibleText(splitLeadingSpace(info.promoted).body)}”`;
  const [token] = info?.top_tokens ?? [];
  return token === undefined ? `Expert ${node.expert}` : `${node.expert}, ${firesOn(token)}`;
}

/** Without layer and token, which its place in the graph shows. */
export function shortName(response: CircuitResponse, node: CircuitNode): string {
  switch (node.kind) {
    case "target":
      return visibleText(response.graph.target.text);
    case "expert":
      return expertName(response, node);
    case "error":
      return "Error";
    case "mlp":
      return "MLP";
    case "embedding":
      return tokenText(response.graph, node.position);
  }
}

/** For example `560, promotes “girl”, layer 3, at ␣little`. */
export function nodeName(response: CircuitResponse, node: CircuitNode): string {
  const name = shortName(response, node);
  if (node.kind === "target") return `Next token “${name}”`;
  if (node.kind === "embedding") return `Token ${name}`;
  if (node.kind === "error") return `Error node, layer ${node.layer}, at ${tokenText(response.graph, node.position)}`;
  return `${name}, layer ${node.layer}, at ${tokenText(response.graph, node.position)}`;
}

interface EdgeEnd {
  /** The same for nodes whose edges are added: the MLPs of a band on one token. */
  readonly key: string;
  readonly name: string;
}

/**
 * As the end of an edge: the MLPs of a band go by their layers.
 *
 * @param index - of the node in the graph
 */
export function edgeEnd(response: CircuitResponse, node: CircuitNode, index: number): EdgeEnd {
  const { graph } = response;
  const band = node.kind === "mlp" && node.layer !== null ? mlpBand(graph, node.layer) : null;
  if (band === null || band.first === band.last) return { key: String(index), name: nodeName(response, node) };
  const layers = bandName(band).toLowerCase();
  return { key: `${layers} ${node.position}`, name: `MLPs, ${layers}, at ${tokenText(graph, node.position)}` };
}

/**
 * Short, so that the box has room: `560 → “girl”` for a promoted token, `560 on “little”` for one it fires on. A graph
 * from a file has such names as labels.
 */
function shortExpertName(response: CircuitResponse, node: CircuitNode): string {
  return expertName(response, node)
    .replace(/^(\d+), promotes (?=“)/u, "$1 → ")
    .replace(/^(\d+), fires (?=on “)/u, "$1 ");
}

/** In its box in the graph. */
export function boxName(response: CircuitResponse, { node, supernode, members }: ShownNode): string {
  if (supernode !== null) return supernode.name;
  if (members.length > 1) return `${members.length} MLPs`;
  return node.kind === "expert" ? shortExpertName(response, node) : shortName(response, node);
}

/** As a heading above the label: experts go by their id. */
export function shownName(response: CircuitResponse, { node, supernode, members }: ShownNode): string {
  if (supernode !== null) return `${supernode.name}, ${members.length} nodes`;
  const { graph } = response;
  const band = members.length > 1 && node.layer !== null ? mlpBand(graph, node.layer) : null;
  if (band !== null) {
    return `${members.length} MLPs, ${bandName(band).toLowerCase()}, at ${tokenText(graph, node.position)}`;
  }
  if (node.kind !== "expert") return nodeName(response, node);
  return `Expert ${node.expert}, layer ${node.layer}, at ${tokenText(response.graph, node.position)}`;
}

export const signClass = (value: number) => (value < 0 ? "down" : "up");
export const sign = (value: number) => (value < 0 ? "−" : "+");

/** Everything that the node shows, and its influence and effect. */
export function accessibleName(response: CircuitResponse, shown: ShownNode): string {
  const { node, supernode } = shown;
  const name = shownName(response, shown);
  if (supernode !== null) return `Supernode ${name}`;
  if (node.kind === "target") return `${name}, logit ${node.direct.toFixed(2)} above the mean`;
  const label = node.kind === "expert" ? `, ${shortExpertName(response, node)}` : "";
  return `${name}${label}, ${formatPercent(node.influence, 1)} % of the influence, effect ${formatSigned(node.effect, 2)}`;
}

/** The part of a circuit that is shown: pruned by influence, with the nodes of each supernode merged. */

import type { CircuitGraph, CircuitNode, CircuitResponse } from "@/api/types";
import { formatCount } from "@/lib/text/format";
import type { Supernode } from "@/pages/prompt/circuits/circuit-params";

import { mergedNode, mlpBand } from "./mlp-bands";

export interface ShownNode {
  /** A node's id in the graph's file; for several nodes, `group:` or `mlps:` and a name. */
  readonly id: string;
  /** Indices of the graph's nodes, most influential first; several for a supernode and for the MLPs of a band. */
  readonly members: readonly number[];
  /** The most influential member, which decides the place; for the MLPs of a band, with their sums. */
  readonly node: CircuitNode;
  readonly supernode: Supernode | null;
}

export interface ShownEdge {
  /** Indices of shown nodes. */
  readonly source: number;
  readonly target: number;
  readonly weight: number;
  readonly influence: number;
}

export interface ShownGraph {
  /** The target, then all others by descending influence. */
  readonly nodes: readonly ShownNode[];
  /** By descending influence. */
  readonly edges: readonly ShownEdge[];
}

export interface Shown {
  /** Share of the graph's influence that the shown nodes hold. */
  readonly prune: number;
  /** Share of the influence along all edges between them that the shown edges hold. */
  readonly edges: number;
  readonly subgraph: "all" | "pinned";
  /** Ids of nodes that are never pruned. */
  readonly pinned: readonly string[];
  readonly groups: readonly Supernode[];
}

export const groupId = ({ name }: Supernode) => `group:${name}`;

/** The most influential items that together hold a share of the sum, and at least one. */
function strongest<T extends { readonly influence: number }>(items: readonly T[], share: number): readonly T[] {
  const total = items.reduce((sum, { influence }) => sum + influence, 0);
  let before = 0;
  return items.filter(({ influence }, i) => {
    const isKept = i === 0 || share >= 1 || before < share * total;
    before += influence;
    return isKept;
  });
}

function keptNodes({ graph, ids }: CircuitResponse, { prune, subgraph, pinned, groups }: Shown): ReadonlySet<number> {
  const always = new Set([...pinned, ...groups.flatMap(({ nodes }) => nodes)]);
  const [, ...sources] = graph.nodes.map((node, index) => ({ index, influence: node.influence }));
  const kept = subgraph === "pinned" ? [] : strongest(sources, prune);
  const marked = ids.flatMap((id, index) => (index === 0 || always.has(id) ? [index] : []));
  return new Set([...marked, ...kept.map(({ index }) => index)]);
}

/** Equal for the MLPs of one band and token; null for other nodes. */
function bandKey(graph: CircuitGraph, { kind, layer, position }: CircuitNode): string | null {
  const band = kind === "mlp" && layer !== null ? mlpBand(graph, layer) : null;
  return band && `mlps:${band.first}-${band.last}:${position}`;
}

/** A single MLP keeps its id; several are one node. */
function bandNode({ graph, ids }: CircuitResponse, shown: ShownNode): ShownNode {
  if (shown.supernode !== null || shown.node.kind !== "mlp") return shown;
  const node = mergedNode(shown.members.flatMap((member) => graph.nodes[member] ?? [])) ?? shown.node;
  const [only, ...others] = shown.members.flatMap((member) => ids[member] ?? []);
  return { ...shown, node, id: only !== undefined && others.length === 0 ? only : shown.id };
}

function mergedNodes(response: CircuitResponse, shown: Shown): readonly ShownNode[] {
  const kept = keptNodes(response, shown);
  const nodes = new Map<string, ShownNode>();
  response.graph.nodes.forEach((node, index) => {
    const id = response.ids[index];
    if (id === undefined || !kept.has(index)) return;
    const supernode = shown.groups.find((group) => group.nodes.includes(id)) ?? null;
    const key = supernode === null ? (bandKey(response.graph, node) ?? id) : groupId(supernode);
    const other = nodes.get(key);
    nodes.set(key, { node, supernode, ...other, id: key, members: [...(other?.members ?? []), index] });
  });
  return [...nodes.values()].map((node) => bandNode(response, node));
}

function mergedEdges({ graph }: CircuitResponse, nodes: readonly ShownNode[], share: number): readonly ShownEdge[] {
  const places = new Map(nodes.flatMap(({ members }, place) => members.map((member) => [member, place] as const)));
  const edges = new Map<string, ShownEdge>();
  for (const { source: from, target: to, weight, influence } of graph.edges) {
    const [source, target] = [places.get(from), places.get(to)];
    if (source === undefined || target === undefined || source === target) continue;
    const key = `${source}-${target}`;
    const other = edges.get(key) ?? { weight: 0, influence: 0 };
    edges.set(key, { source, target, weight: other.weight + weight, influence: other.influence + influence });
  }
  return strongest(
    [...edges.values()].sort((a, b) => b.influence - a.influence),
    share,
  );
}

/** Without the nodes that the edge threshold left without an edge; the target and marked nodes stay. */
function connected({ nodes, edges }: ShownGraph, isMarked: (node: ShownNode) => boolean): ShownGraph {
  const ends = new Set(edges.flatMap(({ source, target }) => [source, target]));
  const kept = nodes.flatMap((node, place) => (place === 0 || ends.has(place) || isMarked(node) ? [place] : []));
  const places = new Map(kept.map((place, i) => [place, i]));
  const moved = (place: number) => places.get(place) ?? 0;
  return {
    nodes: kept.flatMap((place) => nodes[place] ?? []),
    edges: edges.map((edge) => ({ ...edge, source: moved(edge.source), target: moved(edge.target) })),
  };
}

export function shownGraph(response: CircuitResponse, shown: Shown): ShownGraph {
  const nodes = mergedNodes(response, shown);
  const graph = { nodes, edges: mergedEdges(response, nodes, shown.edges) };
  if (shown.edges >= 1) return graph;
  const isPinned = (member: number) => shown.pinned.includes(response.ids[member] ?? "");
  return connected(graph, ({ supernode, members }) => supernode !== null || members.some(isPinned));
}

/** Indices of the graph's nodes that are drawn, without the target. */
export function shownIndices({ nodes }: ShownGraph): readonly number[] {
  return nodes.flatMap(({ members }) => members).filter((index) => index !== 0);
}

/** Share of the influence of all nodes, pruned ones included, that the drawn nodes hold. */
export function shownInfluence({ graph }: CircuitResponse, shown: ShownGraph): number {
  const sum = (indices: Iterable<number>) =>
    [...indices].reduce((total, index) => total + (index === 0 ? 0 : (graph.nodes[index]?.influence ?? 0)), 0);
  const kept = sum(graph.nodes.keys());
  return kept === 0 ? 0 : (graph.retained_influence * sum(shownIndices(shown))) / kept;
}

/** Edges between experts are what makes a graph more than a list of contributions. */
export function expertEdges({ nodes, edges }: ShownGraph): string {
  if (edges.length === 0) return "No edge is shown.";
  const isExpert = (index: number) => nodes[index]?.node.kind === "expert";
  const joined = edges.filter(({ source, target }) => isExpert(source) && isExpert(target)).length;
  if (edges.length === 1) return `The only shown edge ${joined === 1 ? "joins" : "does not join"} two experts.`;
  const number = joined === 0 ? "None" : formatCount(joined);
  return `${number} of the ${formatCount(edges.length)} shown edges ${joined > 1 ? "join" : "joins"} two experts.`;
}

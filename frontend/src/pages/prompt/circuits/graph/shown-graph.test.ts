import { expect, test } from "vitest";

import type { CircuitNode, CircuitResponse } from "@/api/types";

import { expertEdges, shownGraph, shownIndices, shownInfluence } from "./shown-graph";

const node = (kind: CircuitNode["kind"], influence: number): CircuitNode => ({
  kind,
  position: 1,
  layer: kind === "expert" ? 2 : null,
  run: kind === "expert" ? "one" : null,
  expert: kind === "expert" ? Math.round(influence * 100) : null,
  coefficient: 1,
  influence,
  direct: 1,
  effect: 1,
  traced: true,
});

/** Two experts and a token below the target; the token feeds both experts. */
const RESPONSE = {
  ids: ["target", "first", "second", "token"],
  graph: {
    nodes: [node("target", 1), node("expert", 0.5), node("expert", 0.3), node("embedding", 0.2)],
    edges: [
      { source: 1, target: 0, weight: 2, influence: 0.5 },
      { source: 2, target: 0, weight: -1, influence: 0.3 },
      { source: 3, target: 1, weight: 0.5, influence: 0.1 },
      { source: 3, target: 2, weight: 0.25, influence: 0.1 },
    ],
  },
} as unknown as CircuitResponse;

const ALL = { prune: 1, edges: 1, subgraph: "all", pinned: [], groups: [] } as const;
const idsOf = (shown: ReturnType<typeof shownGraph>) => shown.nodes.map(({ id }) => id);

test("pruning keeps the most influential nodes, the target and pinned nodes", () => {
  expect(idsOf(shownGraph(RESPONSE, ALL))).toEqual(["target", "first", "second", "token"]);
  expect(idsOf(shownGraph(RESPONSE, { ...ALL, prune: 0.5 }))).toEqual(["target", "first"]);
  expect(idsOf(shownGraph(RESPONSE, { ...ALL, prune: 0.5, pinned: ["token"] }))).toEqual(["target", "first", "token"]);
  expect(idsOf(shownGraph(RESPONSE, { ...ALL, subgraph: "pinned", pinned: ["token"] }))).toEqual(["target", "token"]);
});

test("the edge threshold keeps the strongest edges between shown nodes", () => {
  expect(shownGraph(RESPONSE, { ...ALL, edges: 0.5 }).edges.map(({ weight }) => weight)).toEqual([2]);
  expect(shownGraph(RESPONSE, { ...ALL, prune: 0.5 }).edges).toHaveLength(1);
});

test("the edge threshold hides nodes without an edge, unless they are pinned", () => {
  expect(idsOf(shownGraph(RESPONSE, { ...ALL, edges: 0.5 }))).toEqual(["target", "first"]);
  const { nodes, edges } = shownGraph(RESPONSE, { ...ALL, edges: 0.85, pinned: ["token"] });
  expect(nodes.map(({ id }) => id)).toEqual(["target", "first", "second", "token"]);
  expect(edges.map(({ source, target }) => [source, target])).toContainEqual([3, 1]);
  expect(idsOf(shownGraph(RESPONSE, { ...ALL, edges: 0.5, pinned: ["token"] }))).toEqual(["target", "first", "token"]);
});

test("coverage is about the drawn nodes and edges", () => {
  const response = { ...RESPONSE, graph: { ...RESPONSE.graph, retained_influence: 0.5 } };
  const all = shownGraph(response, ALL);
  expect([shownIndices(all), shownInfluence(response, all)]).toEqual([[1, 2, 3], 0.5]);
  const pruned = shownGraph(response, { ...ALL, prune: 0.5 });
  expect([shownIndices(pruned), shownInfluence(response, pruned)]).toEqual([[1], 0.25]);
  expect(expertEdges(all)).toBe("None of the 4 shown edges joins two experts.");
  expect(expertEdges(pruned)).toBe("The only shown edge does not join two experts.");
});

test("a supernode has the sums of its members' edges, and none to itself", () => {
  const groups = [{ name: "pair", nodes: ["first", "second"] }];
  const { nodes, edges } = shownGraph(RESPONSE, { ...ALL, groups });
  expect(nodes.map(({ id, members }) => [id, ...members])).toEqual([
    ["target", 0],
    ["group:pair", 1, 2],
    ["token", 3],
  ]);
  expect(edges).toEqual([
    { source: 1, target: 0, weight: 1, influence: 0.8 },
    { source: 2, target: 1, weight: 0.75, influence: 0.2 },
  ]);
  const inner = shownGraph(RESPONSE, { ...ALL, groups: [{ name: "all", nodes: ["first", "token"] }] });
  expect(inner.edges.map(({ source, target }) => [source, target])).toEqual([
    [1, 0],
    [2, 0],
    [1, 2],
  ]);
});

test("the MLPs between two layers with a run are one node per token", () => {
  const mlp = (layer: number, position: number, effect: number) => ({ ...node("mlp", 0.1), layer, position, effect });
  const nodes = [node("target", 1), mlp(3, 1, 2), mlp(5, 1, -0.5), mlp(3, 0, 1), mlp(8, 1, 1)];
  const edges = [1, 2].map((source) => ({ source, target: 0, weight: 1, influence: 0.1 }));
  const ids = ["target", "a", "b", "c", "d"];
  const response = { ids, graph: { layers: [2, 7], nodes, edges } } as unknown as CircuitResponse;
  const { nodes: shown, edges: merged } = shownGraph(response, ALL);
  expect(shown.map(({ id, members }) => [id, ...members])).toEqual([
    ["target", 0],
    ["mlps:3-5:1", 1, 2],
    ["c", 3],
    ["d", 4],
  ]);
  expect(shown[1]?.node).toMatchObject({ influence: 0.2, effect: 1.5 });
  expect(merged).toEqual([{ source: 1, target: 0, weight: 2, influence: 0.2 }]);
});

import { expect, test } from "vitest";

import type { CircuitGraph, CircuitNode } from "@/api/types";

import { layoutCircuit, neighbour } from "./layout";
import { shownGraph } from "./shown-graph";

function node(kind: CircuitNode["kind"], position: number, more: Partial<CircuitNode> = {}): CircuitNode {
  return {
    kind,
    position,
    layer: null,
    run: null,
    expert: null,
    coefficient: null,
    influence: 0.1,
    direct: 0.2,
    effect: 0.3,
    traced: true,
    ...more,
  };
}

const expert = (position: number, layer: number, id: number, influence = 0.1) =>
  node("expert", position, { layer, expert: id, run: `l${layer}`, coefficient: 1, influence });

function graph(nodes: readonly CircuitNode[]): CircuitGraph {
  const next = { id: 9, text: " red", probability: 0.5, logit: 4 };
  return {
    runs: ["l1", "l4"],
    layers: [1, 4],
    tokens: ["<s>", "The", " extraordinarily", " old"].map((text, i) => ({ id: i, text, start: i === 0 })),
    target: next,
    candidates: [next],
    nodes: [node("target", 3, { influence: 1 }), ...nodes],
    edges: [],
    direct: {},
    origins: {},
    num_nodes: 100,
    retained_influence: 0.7,
    retained_edge_influence: 0.9,
    rounding: 0,
  };
}

function layout(circuit: CircuitGraph) {
  const ids = circuit.nodes.map((_, index) => `node ${index}`);
  const all = { prune: 1, edges: 1, subgraph: "all", pinned: [], groups: [] } as const;
  return layoutCircuit(circuit, shownGraph({ graph: circuit, ids, experts: {}, took_ms: 0 }, all));
}

const FULL = graph([
  expert(3, 4, 1, 0.4),
  ...Array.from({ length: 9 }, (_, i) => expert(3, 1, i)),
  expert(1, 1, 20),
  node("embedding", 1),
  node("mlp", 3, { layer: 2 }),
]);

test("layers go from bottom to top, tokens from left to right, and traced layers have a row", () => {
  const { rows, nodes } = layout(FULL);
  expect(rows.map(({ name }) => name)).toEqual(["target", "4", "2", "1", "embedding"]);
  const at = (index: number) => nodes[index] ?? expect.fail("no such node");
  expect(at(0).y).toBeLessThan(at(1).y);
  expect(at(1).y).toBeLessThan(at(2).y);
  expect(at(11).x).toBeLessThan(at(1).x);
  expect(at(12).y).toBeGreaterThan(at(11).y);
  expect(at(12).x).toBe(at(11).x);
});

test("a traced layer has a row even if no node of it was kept", () => {
  const { rows, nodes } = layout(graph([expert(3, 4, 1)]));
  expect(rows.map(({ name }) => name)).toEqual(["target", "4", "1", "embedding"]);
  expect(nodes).toHaveLength(2);
});

test("nodes do not overlap and are inside the layout", () => {
  const { nodes, width, height } = layout(FULL);
  for (const a of nodes) {
    expect(a.x - a.width / 2).toBeGreaterThanOrEqual(0);
    expect(a.x + a.width / 2).toBeLessThanOrEqual(width);
    expect(a.y + a.height / 2).toBeLessThanOrEqual(height);
    for (const b of nodes) {
      const apart =
        Math.abs(a.x - b.x) >= (a.width + b.width) / 2 - 0.01 ||
        Math.abs(a.y - b.y) >= (a.height + b.height) / 2 - 0.01;
      expect(a === b || apart).toBe(true);
    }
  }
});

test("columns are at least as wide as their tokens", () => {
  const { columns } = layout(FULL);
  expect(columns[2]?.width).toBeGreaterThan((columns[0]?.width ?? 0) * 1.5);
});

test("arrow keys move to the nearest node in their direction", () => {
  const { nodes } = layout(FULL);
  const [target, top] = nodes;
  if (target === undefined || top === undefined) expect.fail("no nodes");
  expect(neighbour(nodes, target, "ArrowDown")).toBe(top);
  expect(neighbour(nodes, top, "ArrowUp")).toBe(target);
  expect(neighbour(nodes, target, "ArrowUp")).toBeUndefined();
  const left = neighbour(nodes, nodes[3] ?? top, "ArrowLeft");
  expect(left?.shown.node.layer).toBe(1);
});

test("long texts leave out tokens without nodes", () => {
  const short = graph([expert(1, 1, 5), expert(150, 1, 6)]);
  const tokens = Array.from({ length: 200 }, (_, id) => ({ id, text: " word", start: id === 0 }));
  const [, ...others] = short.nodes;
  const { columns, nodes } = layout({ ...short, tokens, nodes: [node("target", 199), ...others] });
  expect(columns.filter(({ width }) => width > 0).map(({ position }) => position)).toEqual([0, 1, 2, 150, 151, 199]);
  expect(columns.filter(({ isGap }) => isGap).map(({ position }) => position)).toEqual([0, 2, 151]);
  const xs = nodes.map(({ x }) => x);
  expect(new Set(xs).size).toBe(xs.length);
});

test("nodes become narrower so that the graph fits, down to a limit", () => {
  const ids = FULL.nodes.map((_, index) => `node ${index}`);
  const all = { prune: 1, edges: 1, subgraph: "all", pinned: [], groups: [] } as const;
  const shown = shownGraph({ graph: FULL, ids, experts: {}, took_ms: 0 }, all);
  const widest = layoutCircuit(FULL, shown);
  const fitted = layoutCircuit(FULL, shown, widest.width - 20);
  expect(fitted.width).toBeLessThanOrEqual(widest.width - 20);
  expect(layoutCircuit(FULL, shown, 1).width).toBeGreaterThan(1);
});

import { expect, test } from "vitest";

import type { CircuitGraph, CircuitNode } from "@/api/types";

import { layoutCircuit, neighbour, tokenRuns } from "./layout";

const expert = (layer: number, position: number, number: number): CircuitNode => ({
  kind: "expert",
  position,
  layer,
  run: `l${layer}`,
  expert: number,
  activation: 1,
  predicted: -0.1,
  method: "gradient",
});

function circuit(tokens: number, experts: readonly CircuitNode[]): CircuitGraph {
  const target = { ...expert(0, tokens - 1, 0), kind: "target" as const, layer: null, run: null, expert: null };
  return {
    runs: ["l1", "l2"],
    layers: [1, 2],
    tokens: Array.from({ length: tokens }, (_, id) => ({ id, text: ` word${id}`, start: id === 0 })),
    prompt_tokens: tokens,
    target: { kind: "token", token: 1 },
    label: "logit of ' word'",
    value: 2,
    candidates: [],
    nodes: [target, ...experts],
    edges: [],
    active: 90,
    retained: 0.2,
  };
}

test.each([340, 640, 980])(
  "boxes in %i px do not overlap, higher layers are higher, and all are inside",
  (available) => {
    const experts = [...Array.from({ length: 7 }, (_, i) => expert(2, 4, i)), expert(1, 4, 9), expert(1, 2, 8)];
    const { nodes, width, height } = layoutCircuit(circuit(5, experts), available);
    expect(width).toBeLessThanOrEqual(available);
    expect(width).toBeGreaterThan(0.9 * available);
    expect(nodes.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for (const a of nodes) {
      expect(a.x - a.width / 2).toBeGreaterThanOrEqual(0);
      expect(a.x + a.width / 2).toBeLessThanOrEqual(width);
      expect(a.y + a.height / 2).toBeLessThanOrEqual(height);
      for (const b of nodes.filter(({ index }) => index > a.index)) {
        const apart =
          Math.abs(a.x - b.x) >= (a.width + b.width) / 2 || Math.abs(a.y - b.y) >= (a.height + b.height) / 2;
        expect(apart).toBe(true);
      }
    }
    expect(nodes[8]?.y).toBeGreaterThan(nodes[7]?.y ?? Infinity);
  },
);

test("the highest stack takes the width that other columns do not need", () => {
  const experts = [...Array.from({ length: 7 }, (_, i) => expert(2, 4, i)), expert(1, 2, 8)];
  const { nodes } = layoutCircuit(circuit(5, experts), 980);
  expect(new Set(nodes.slice(1, 8).map(({ y }) => y)).size).toBe(2);
});

test("a graph of many tokens is wider than its box, so that its boxes stay legible", () => {
  const { nodes, width } = layoutCircuit(
    circuit(
      12,
      Array.from({ length: 11 }, (_, i) => expert(1, i + 1, i)),
    ),
    640,
  );
  expect(width).toBeGreaterThan(640);
  for (const node of nodes) expect(node.width).toBeGreaterThanOrEqual(116);
});

test("columns of tokens with experts have one width, and the others leave room to them", () => {
  const { columns } = layoutCircuit(circuit(9, [expert(2, 1, 1), expert(2, 5, 2), expert(1, 5, 3)]), 900);
  const [named, others] = [columns.filter(({ label }) => label !== "⋯"), columns.filter(({ label }) => label === "⋯")];
  expect(new Set(named.map(({ width }) => width)).size).toBe(1);
  expect(named).toHaveLength(2);
  expect(others.map(({ width }) => width)).toEqual([24, 24, 24]);
  expect(others[0]?.text).toBe("␣word2 ␣word3 ␣word4");
});

test("tokens without experts are joined", () => {
  const shown = tokenRuns(circuit(40, [expert(1, 10, 1)])).map(({ positions }) => positions.length);
  expect(shown).toEqual([9, 1, 28, 1]);
});

test("arrow keys lead to the nearest node", () => {
  const { nodes } = layoutCircuit(circuit(5, [expert(2, 4, 1), expert(1, 4, 2), expert(1, 1, 3)]), 640);
  const [target, upper, lower, left] = nodes;
  if (target === undefined || lower === undefined) throw new Error("no nodes");
  expect(neighbour(nodes, target, "ArrowDown")).toBe(upper);
  expect(neighbour(nodes, lower, "ArrowLeft")).toBe(left);
  expect(neighbour(nodes, target, "ArrowUp")).toBeUndefined();
  expect(neighbour(nodes, target, "x")).toBeUndefined();
});

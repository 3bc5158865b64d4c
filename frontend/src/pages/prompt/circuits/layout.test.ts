import { expect, test } from "vitest";

import type { CircuitGraph, CircuitNode } from "@/api/types";

import { graphRows, neighbour, tokenRuns } from "./layout";

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

test("the target is on top, then the last layer", () => {
  const experts = [expert(1, 4, 9), ...Array.from({ length: 2 }, (_, i) => expert(2, 4, i)), expert(1, 2, 8)];
  expect(graphRows(circuit(5, experts))).toEqual([
    { title: "Target", indices: [0] },
    { title: "Layer 2", indices: [2, 3] },
    { title: "Layer 1", indices: [1, 4] },
  ]);
});

test("tokens without experts are joined", () => {
  const shown = tokenRuns(circuit(40, [expert(1, 10, 1)])).map(({ positions }) => positions.length);
  expect(shown).toEqual([9, 1, 28, 1]);
});

test("arrow keys lead to the nearest node", () => {
  const [target, upper, lower, left] = [
    { x: 400, y: 0 },
    { x: 390, y: 40 },
    { x: 390, y: 80 },
    { x: 90, y: 80 },
  ] as const;
  const boxes = [target, upper, lower, left];
  expect(neighbour(boxes, target, "ArrowDown")).toBe(1);
  expect(neighbour(boxes, lower, "ArrowLeft")).toBe(3);
  expect(neighbour(boxes, target, "ArrowUp")).toBeUndefined();
  expect(neighbour(boxes, target, "x")).toBeUndefined();
});

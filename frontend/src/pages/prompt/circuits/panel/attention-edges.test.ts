import { expect, test } from "vitest";

import type { CircuitResponse } from "@/api/types";
import type { ShownNode } from "@/pages/prompt/circuits/graph/shown-graph";

import { attentionEdges } from "./attention-edges";

const nodes = [{ position: 5 }, { position: 5 }, { position: 2 }, { position: 1 }];
const edges = [
  { source: 1, target: 0, weight: 3 },
  { source: 2, target: 0, weight: 2 },
  { source: 3, target: 2, weight: -1 },
];
const response = { graph: { nodes, edges } } as unknown as CircuitResponse;
const shown = (...members: number[]) => ({ members }) as unknown as ShownNode;

test("edges on one token need no attention", () => {
  expect(attentionEdges(response, shown(1))).toEqual([]);
  expect(attentionEdges(response, shown(0))).toEqual([edges[1]]);
});

test("edges into a node come before those out of it", () => {
  expect(attentionEdges(response, shown(2))).toEqual([edges[2], edges[1]]);
  expect(attentionEdges(response, shown(2, 3))).toEqual([edges[2], edges[1]]);
});

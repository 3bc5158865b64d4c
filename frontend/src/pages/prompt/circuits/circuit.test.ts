import { expect, test } from "vitest";

import type { CircuitGraph, CircuitNode, CircuitTarget } from "@/api/types";

import { isWholeWord } from "@/components/tokens/token-chip";
import { layersParam } from "@/pages/prompt/routing/routing-params";

import { defaultTarget, graphRows, MOST_PROBABLE, pathThrough, sizedEdges, targetParam, tokenRuns } from "./circuit";

const TARGETS: readonly CircuitTarget[] = [
  MOST_PROBABLE,
  { kind: "token", token: 12 },
  { kind: "difference", token: 12, other: 7 },
  { kind: "set", tokens: [12, 7] },
  { kind: "continuation", text: " 3-4, and: more" },
  { kind: "expert", run: "my-run/x", expert: 31 },
];

test.each(TARGETS)("a target survives the URL: $kind", (target) => {
  expect(targetParam.read(targetParam.write(target))).toEqual(target);
});

test.each(["x", "any:", "expert:31", "-4"])("an invalid target is the most probable token: %s", (text) => {
  expect(targetParam.read(text)).toEqual(MOST_PROBABLE);
});

test("no other layer differs from the default", () => {
  expect(layersParam.read(layersParam.write([]))).toEqual([]);
  expect(layersParam.read(null)).toBeNull();
});

const texts = (...all: string[]) => all.map((text, id) => ({ id, text, start: id === 0, probability: 0.1 }));

test.each([
  [["<s>", "The", " man"], [" slept", ","], null],
  [["<s>", "The", " man"], [",", " ", " slept", " ran"], { token: 2, position: null }],
  [["<s>", "The", " man"], [",", ".", "!", "?", ";", " slept"], { token: 5, position: null }],
  [["<s>", "The", " man", " slept", ".", "\n"], ["\n", " He"], { token: 3, position: 2 }],
  [["<s>", "Yes", "."], [" He"], null],
  [["<s>", "The", " man", " did", " this", "."], [" He"], { token: 2, position: 1 }],
  [["<s>", "The", " man"], [" I", " slept"], { token: 1, position: null }],
])("the default target of %s, before one of %j, is a word if one is shown", (tokens, candidates, expected) => {
  expect(defaultTarget({ tokens: texts(...tokens), candidates: texts(...candidates) })).toEqual(expected);
});

test("fragments, parts of characters and punctuation are no whole words", () => {
  expect([" which", " a", "ymour", " l", "\ufffd\ufffd", "!),", ""].filter(isWholeWord)).toEqual([" which", " a"]);
});

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

test("a layer without an expert keeps its row, unless it is after the explained expert", () => {
  const graph = circuit(5, [expert(1, 4, 9)]);
  const titles = (of: CircuitGraph) => graphRows(of).map(({ title, indices }) => [title, indices.length]);
  expect(titles(graph)).toEqual([
    ["Target", 1],
    ["Layer 2", 0],
    ["Layer 1", 1],
  ]);
  expect(titles({ ...graph, target: { kind: "expert", run: "l2", expert: 3 } })).toEqual([
    ["Target", 1],
    ["Layer 1", 1],
  ]);
});

test("tokens without experts are joined", () => {
  const shown = tokenRuns(circuit(40, [expert(1, 10, 1)])).map(({ positions }) => positions.length);
  expect(shown).toEqual([9, 1, 28, 1]);
});

test("strong edges and those of a node are drawn, and the path through it is known", () => {
  const edge = (source: number, target: number, predicted: number) => ({
    source,
    target,
    predicted,
    leaves_top_k: false,
  });
  const nodes = [expert(2, 4, 0), expert(1, 3, 1), expert(1, 2, 2), expert(1, 1, 3)];
  const ends = [edge(1, 0, -1), edge(2, 0, -0.2), edge(3, 0, 0.5)];
  const between = [edge(2, 1, -0.1), edge(3, 1, 0.01)];
  const all = sizedEdges({ ...circuit(5, nodes), edges: [...ends, ...between] });
  expect(all.map(({ isStrong }) => isStrong)).toEqual([true, false, true, true, false]);
  const { drawn, path, nodes: onPath } = pathThrough(2, all);
  expect(drawn.map(({ source, target }) => `${source}-${target}`)).toEqual(["1-0", "2-0", "3-0", "2-1"]);
  expect([...path].map(({ source, target }) => `${source}-${target}`)).toEqual(["1-0", "2-0", "2-1"]);
  expect([...onPath].toSorted()).toEqual([0, 1, 2]);
});

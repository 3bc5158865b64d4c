import { expect, test } from "vitest";

import type { CircuitCheck, CircuitGraph, CircuitNode, CircuitTarget } from "@/api/types";

import { isWholeWord } from "@/components/tokens/token-chip";
import { layersParam } from "@/pages/prompt/routing/routing-params";

import { defaultTarget, graphRows, MOST_PROBABLE, targetParam, tokenRuns, verdict } from "./circuit";

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

const GRAPH = { value: 10, active: 90, target: MOST_PROBABLE } as CircuitGraph;

function check(correlation: number | null, sameSign: number): CircuitCheck {
  const agreement = { count: 20, correlation, same_sign: sameSign, slope: 1, largest_miss: 0.25 };
  return {
    measured: [null, -1],
    edges: [-1],
    left_top_k: [false],
    experts: agreement,
    between: agreement,
    joint: { predicted: -2, measured: -1.5 },
    sufficiency: { without_experts: 6, mean: 8, random_mean: 9, random_worst: 7, draws: 8, control: 6.4 },
    scores: { replacement: 0.1, completeness: 0.5 },
  };
}

test.each([
  [0.97, 1, "good"],
  [0.97, 0.7, "weak"],
  [0.7, 0.9, "weak"],
  [0.5, 1, "bad"],
  [null, 1, "bad"],
] as const)("r %s and %s in the predicted direction are %s", (correlation, sameSign, level) => {
  expect(verdict(GRAPH, check(correlation, sameSign)).level).toBe(level);
});

test("experts that do no more alone than random ones are not sufficient, whatever the sign of the target", () => {
  for (const [value, without, mean, control] of [
    [10, 6, 6.2, 6.4],
    [-10, -6, -6.2, -6.4],
  ] as const) {
    const checked = check(0.97, 1);
    const sufficiency = { ...checked.sufficiency, without_experts: without, mean, control };
    const found = verdict({ ...GRAPH, value }, { ...checked, sufficiency });
    expect(found.level).toBe("weak");
    expect(found.claim).toContain(": not sufficient, ");
  }
});

test.each([
  [6.5, -0.03, "weak", "sufficient in part, not necessary"],
  [8, -1.5, "good", "sufficient in part, necessary in part"],
  [9.8, -2.5, "good", "sufficient, necessary"],
])(
  "experts that alone lead from 6 to %s of 10, and lower it by %s, are %s: %s",
  (mean, measured, level, conclusion) => {
    const checked = check(0.97, 1);
    const sufficiency = { ...checked.sufficiency, mean };
    const found = verdict(GRAPH, { ...checked, sufficiency, joint: { predicted: -2, measured } });
    expect(found.level).toBe(level);
    expect(found.claim).toContain(`: ${conclusion}`);
  },
);

test("the claim says what the experts do alone, and whether the target needs them", () => {
  const { claim, figures } = verdict(GRAPH, check(0.97, 1));
  expect(claim).toBe(
    "Kept alone, 20 of 90 active experts give +2.00 of the +4.00 that all experts add to the prediction; 20 random " +
      "ones give +0.40. Ablated together, they change it by −1.50: sufficient in part, necessary in part",
  );
  expect(figures.map(({ name, value }) => [name, value])).toEqual([
    ["Kept alone", "+2.00"],
    ["Ablated together", "−1.50"],
    ["Replacement score", "0.10"],
  ]);
});

test("a share that is not above zero is none", () => {
  const checked = check(0.97, 1);
  const found = verdict(GRAPH, { ...checked, sufficiency: { ...checked.sufficiency, control: 5.9 } });
  expect(found.figures[0]?.note).toBe("50\u00a0% of what all 90 active experts add (+4.00); 20 random ones none");
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

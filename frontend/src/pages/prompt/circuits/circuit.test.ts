import { expect, test } from "vitest";

import type { CircuitCheck, CircuitGraph, CircuitTarget } from "@/api/types";

import { isWholeWord } from "@/components/tokens/token-chip";
import { layersParam } from "@/pages/prompt/routing/routing-params";

import { defaultTarget, MOST_PROBABLE, targetParam, verdict } from "./circuit";

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
  [["<s>", "The", " man"], [",", ".", "!", "?", ";", " slept"], null],
  [["<s>", "The", " man", " slept", ".", "\n"], ["\n", " He"], { token: 3, position: 2 }],
  [["<s>", "Yes", "."], [" He"], null],
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

test("experts that do no more alone than random ones are said in the claim, whatever the sign of the target", () => {
  for (const [value, without, mean, control] of [
    [10, 6, 6.2, 6.4],
    [-10, -6, -6.2, -6.4],
  ] as const) {
    const checked = check(0.97, 1);
    const sufficiency = { ...checked.sufficiency, without_experts: without, mean, control };
    const found = verdict({ ...GRAPH, value }, { ...checked, sufficiency });
    expect(found.level).toBe("weak");
    expect(found.claim).toContain("20 of 90 active experts alone explain no more of the prediction than random ones");
  }
});

test.each([
  [6.5, "weak", "13", "rest is spread over many others"],
  [7, "weak", "25", "rest is spread over many others"],
  [8, "good", "50", "graph is about half of the explanation"],
  [9, "good", "75", "graph is most of the explanation"],
])("experts that alone lead to %s of 10, from 6, are %s: they explain %s %%", (mean, level, share, conclusion) => {
  const checked = check(0.97, 1);
  const found = verdict(GRAPH, { ...checked, sufficiency: { ...checked.sufficiency, mean } });
  expect(found.level).toBe(level);
  expect(found.claim).toBe(
    `20 of 90 active experts explain ${share}\u00a0% of what all add to the prediction (+4.00), 20 random ones 10\u00a0%: the ${conclusion}`,
  );
});

test("a share that is not above zero is none", () => {
  const checked = check(0.97, 1);
  const found = verdict(GRAPH, { ...checked, sufficiency: { ...checked.sufficiency, control: 5.9 } });
  expect(found.claim).toContain("50\u00a0% of what all add to the prediction (+4.00), 20 random ones none: ");
});

test("each figure is a change of the target, and its share of what all experts do", () => {
  const { figures } = verdict(GRAPH, check(0.97, 1));
  expect(figures.slice(0, 3).map(({ value, note }) => `${value}, ${note}`)).toEqual([
    "+4.00, change of the target",
    "+2.00, 50\u00a0% of what all do",
    "+0.40, 10\u00a0% of what all do",
  ]);
  expect(figures[3]?.note).toBe("direction of 20; r = 0.97, largest miss 0.25");
  expect(figures[6]?.note).toBe("worst of 8 draws 25\u00a0%");
});

import { expect, test } from "vitest";

import type { CircuitCheck, CircuitGraph } from "@/api/types";

import { verdict } from "./verdict";

const GRAPH = { value: 10, active: 90 } as CircuitGraph;

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
    expect([found.level, found.claim]).toEqual(["weak", "The 20 shown experts alone do no more than random ones"]);
  }
});

test.each([
  [6.5, "weak", "little"],
  [7, "good", "part"],
  [8, "good", "most"],
  [14, "good", "most"],
])(
  "experts that alone lead to %s are %s: they explain %s of a target of 10, which is 6 without experts",
  (mean, level, amount) => {
    const checked = check(0.97, 1);
    const found = verdict(GRAPH, { ...checked, sufficiency: { ...checked.sufficiency, mean } });
    expect([found.level, found.claim]).toEqual([level, `The 20 shown experts explain ${amount} of the prediction`]);
  },
);

test("each figure is a change of the target, and its share of what all experts do", () => {
  const { figures, details } = verdict(GRAPH, check(0.97, 1));
  expect(figures.map(({ value, note = "" }) => `${value} ${note}`.trim())).toEqual([
    "+4.00",
    "+2.00 50\u00a0%",
    "+0.40 10\u00a0%",
    "r = 0.97",
  ]);
  expect(details[3]?.note).toBe("worst of 8 draws 25\u00a0%");
});

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

test("experts that do no more alone than random ones are said in the verdict, whatever the sign of the target", () => {
  for (const [value, without, mean, control] of [
    [10, 6, 6.2, 6.4],
    [-10, -6, -6.2, -6.4],
  ] as const) {
    const checked = check(0.97, 1);
    const sufficiency = { ...checked.sufficiency, without_experts: without, mean, control };
    const found = verdict({ ...GRAPH, value }, { ...checked, sufficiency });
    expect(found.level).toBe("weak");
    expect(found.headline).toContain("The predictions hold, but");
  }
});

test("sufficiency is a share of what all experts do", () => {
  const [, , , alone] = verdict(GRAPH, check(0.97, 1)).figures;
  expect(alone?.value).toBe("50\u00a0%"); // (8 - 6) / (10 - 6)
  expect(alone?.note).toContain("random experts 10\u00a0%"); // 0.4 / 4
  expect(alone?.note).toContain("worst of 8 draws 25\u00a0%");
});

test("a share above 1 is said as changes of the target", () => {
  const checked = check(0.97, 1);
  expect(verdict(GRAPH, checked).amount).toBe(
    "20 of 90 active experts do 50\u00a0% of what all do together, as many random ones 10\u00a0%.",
  );
  const sufficiency = { ...checked.sufficiency, mean: 14 };
  expect(verdict(GRAPH, { ...checked, sufficiency }).amount).toBe(
    "20 of 90 active experts alone change the target by +8.00, all together by +4.00, as many random ones by +0.40.",
  );
});

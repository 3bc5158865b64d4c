import { describe, expect, it } from "vitest";

import type { EvaluationSummary, RunDetail } from "@/api/types";

import { evaluationVerdict, fairness, unfairDifferences } from "./verdict";

const RUN = { layer: 3, trained_tokens: 5e6, parameters: 2_600_000, k: 16 } as RunDetail["run"];

function evaluation(run: string, value: number, low: number, high: number): EvaluationSummary {
  const faithfulness = [{ name: "Loss increase", value, low, high, unit: "nats", description: "" }];
  return { run, text: "data/held_out.jsonl", tokens: 10_240, faithfulness } as unknown as EvaluationSummary;
}

describe("the conditions of two runs", () => {
  it("are equal within 1 %", () => {
    expect(unfairDifferences(RUN, { ...RUN, parameters: 2_610_000 })).toEqual([]);
    expect(fairness(RUN, RUN)).toBe(
      "Equal conditions: layer 3, 5 M training tokens, 2,600,000 parameters, K 16, each within 1 %.",
    );
  });

  it("are named where they differ", () => {
    expect(fairness(RUN, { ...RUN, trained_tokens: 1.2e6, k: 32 })).toBe(
      "Not a fair comparison: 5 M training tokens against 1.2 M training tokens; K 16 against K 32.",
    );
  });
});

describe("the verdict of an evaluation", () => {
  it("names the better run, whichever comes first", () => {
    const [good, bad] = [evaluation("a", 0.0177, 0.0143, 0.0212), evaluation("b", 0.04, 0.034, 0.046)];
    expect(evaluationVerdict({ one: good, other: bad }, { value: -0.0223, low: -0.028, high: -0.0166 })).toBe(
      "a predicts better: the loss increase of a minus that of b is −0.0223 nats (−0.0280 to −0.0166). " +
        "They are 0.0177 (0.0143 to 0.0212) and 0.0400 (0.0340 to 0.0460). " +
        "Sample: 10,240 tokens of held_out.jsonl; the difference is paired by sequence.",
    );
    expect(evaluationVerdict({ one: bad, other: good }, { value: 0.0223, low: 0.0166, high: 0.028 })).toMatch(
      /^a predicts better: .* is \+0.0223 nats/,
    );
  });

  it("is open if the interval of the difference contains zero", () => {
    const pair = { one: evaluation("a", 0.02, 0.01, 0.03), other: evaluation("b", 0.025, 0.015, 0.035) };
    expect(evaluationVerdict(pair, { value: -0.005, low: -0.011, high: 0.001 })).toMatch(/^No clear difference: /);
  });

  it("needs a loss increase of both", () => {
    const NONE = { value: 0, low: 0, high: 0 };
    const without = { ...evaluation("a", 0, 0, 0), faithfulness: [] };
    expect(evaluationVerdict({ one: without, other: evaluation("b", 0, 0, 0) }, NONE)).toBeNull();
  });
});

import { describe, expect, it } from "vitest";

import type { EvaluationSummary, Fact, Interpretability } from "@/api/types";

import { interpretabilityVerdict } from "./interpretability";
import { overallVerdict } from "./overall";

const RUNS = ["a", "b"] as const;

const index = (tokens: number, score: number, entropy: number): Interpretability => ({
  indexed_tokens: tokens,
  index_text: "text",
  label_score: { value: score, standard_error: 0.01, experts: 90 },
  token_entropy: { value: entropy, standard_error: 0.1, experts: 100 },
});

const fact = (name: string, value: number, group: string | null = null): Fact => ({
  name,
  value,
  low: value - 0.1,
  high: value + 0.1,
  unit: "share",
  description: "",
  group,
});

const evaluation = (run: string, losses: number, kl: number, next: number) =>
  ({
    run,
    faithfulness: [
      fact("Loss increase", losses),
      fact("Loss recovered vs zero ablation", 1 - losses),
      fact("KL divergence", kl),
      fact("Next token", next, "Same greedy continuation"),
      fact("Next 2 tokens", next, "Same greedy continuation"),
    ],
  }) as unknown as EvaluationSummary;

const COMMON = { one: evaluation("a", 0.3, 0.9, 0.5), other: evaluation("b", 0.2, 0.5, 0.4) };
const LOSS = { value: 0.1, low: 0.05, high: 0.15, tokens: 100 };
const EXPERTS = [index(1000, 0.8, 3), index(1000, 0.7, 3.1)] as const;

describe("the overall verdict", () => {
  it("lists the metrics by the run that they favour, once each", () => {
    expect(overallVerdict(RUNS, COMMON, LOSS, EXPERTS)).toEqual([
      "a is better on score of automatic labels.",
      "b is better on loss increase, KL divergence.",
      "Undecided: equal continuations, token entropy.",
    ]);
  });

  it("counts agreement minus its control", () => {
    const agreeing = (run: string, agreement: number, control: number) =>
      ({
        run,
        faithfulness: [fact("Jacobian agreement", agreement), fact("Jacobian control", control)],
      }) as unknown as EvaluationSummary;
    const common = { one: agreeing("a", 0.5, 0.4), other: agreeing("b", 0.4, -0.4) };
    expect(overallVerdict(RUNS, common, null, [null, null])).toEqual([
      "b is better on Jacobian agreement above its control.",
    ]);
  });

  it("leaves out experts of different indexes, and names no run without a clear metric", () => {
    const experts = [index(1000, 0.8, 3), index(500, 0.7, 3)] as const;
    expect(overallVerdict(RUNS, null, null, experts)).toEqual([]);
    expect(overallVerdict(RUNS, null, null, [index(1000, 0.8, 3), index(1000, 0.8, 3.1)])).toEqual([
      "No metric clearly favours a run.",
      "Undecided: score of automatic labels, token entropy.",
    ]);
  });
});

describe("interpretability", () => {
  it("names the favoured run and the sample", () => {
    const text = interpretabilityVerdict(RUNS, EXPERTS);
    expect(text).toContain(
      "Score of automatic labels (balanced accuracy on held-out examples, 0.5 is chance; higher is easier to describe) favours a: 0.800 against 0.700, +0.100 (+0.072 to +0.128).",
    );
    expect(text).toContain(
      "Token entropy (bits, lower is more specific) does not differ clearly: 3.00 against 3.10, −0.10 (−0.38 to +0.18).",
    );
    expect(text).toContain("Sample: 100 and 100 active experts, of which 90 and 90 have an automatic label.");
  });

  it("favours no run on indexes of different length", () => {
    const text = interpretabilityVerdict(RUNS, [index(1000, 0.8, 3), index(500, 0.7, 3)]);
    expect(text).toContain("Not a fair comparison");
    expect(text).not.toContain("favours");
    expect(interpretabilityVerdict(null, EXPERTS)).not.toContain("favours");
    expect(interpretabilityVerdict(RUNS, [null, index(500, 0.7, 3)])).toContain("Not measured");
  });
});

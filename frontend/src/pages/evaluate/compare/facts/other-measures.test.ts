import { describe, expect, it } from "vitest";

import type { EvaluationSummary, Fact, Interpretability } from "@/api/types";

import { inactiveVerdict, interpretabilityVerdict, metricsVerdict } from "./other-measures";

const fact = (name: string, value: number, low: number | null = null, high: number | null = null): Fact => ({
  name,
  value,
  low,
  high,
  unit: "share",
  description: "",
});

const evaluation = (run: string, faithfulness: readonly Fact[], inactive = 0.1) =>
  ({ run, tokens: 1000, faithfulness, health: [fact("Inactive experts", inactive)] }) as unknown as EvaluationSummary;

const index = (tokens: number, score: number, entropy: number): Interpretability => ({
  indexed_tokens: tokens,
  index_text: "text",
  label_score: { value: score, standard_error: 0.01, experts: 100 },
  token_entropy: { value: entropy, standard_error: 0.1, experts: 100 },
});

describe("measures besides the loss", () => {
  it("differ only if their intervals do not overlap", () => {
    const one = evaluation("a", [fact("Loss increase", 1, 0, 2), fact("KL", 0.1, 0.05, 0.2), fact("J", 0.5, 0.4, 0.6)]);
    const other = evaluation("b", [
      fact("Loss increase", 9, 8, 10),
      fact("KL", 0.2, 0.1, 0.3),
      fact("J", 0.8, 0.7, 0.9),
    ]);
    expect(metricsVerdict({ one, other })).toMatch(
      /^1 of 2 other metrics have intervals that do not overlap: J 50\.0 % against 80\.0 %\./,
    );
    expect(metricsVerdict({ one: evaluation("a", []), other })).toBeNull();
  });

  it("name the sample of inactive experts", () => {
    expect(inactiveVerdict({ one: evaluation("a", [], 0.1), other: evaluation("b", [], 0.2) })).toBe(
      "10.0 % of the experts of a and 20.0 % of those of b are active on none of the 1,000 evaluated tokens.",
    );
  });

  it("are unfair on indexes of different length", () => {
    const same = interpretabilityVerdict(index(1000, 0.8, 3), index(1000, 0.7, 3.1));
    expect(same).toContain("label score 0.800 against 0.700, +0.100 (+0.072 to +0.128)");
    expect(same).toContain("token entropy in bits 3.00 against 3.10, −0.10 (−0.38 to +0.18, no clear difference)");
    expect(interpretabilityVerdict(index(1000, 0.8, 3), index(500, 0.7, 3))).toContain("Not a fair comparison");
    expect(interpretabilityVerdict(null, index(500, 0.7, 3))).toContain("Not measured");
  });
});

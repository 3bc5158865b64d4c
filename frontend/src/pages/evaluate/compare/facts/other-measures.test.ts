import { describe, expect, it } from "vitest";

import type { EvaluationSummary, Fact, Interpretability } from "@/api/types";

import {
  deadVerdict,
  interpretabilityVerdict,
  metricsVerdict,
  reconstructionNote,
  routingVerdict,
} from "./other-measures";

const fact = (name: string, value: number, low: number | null = null, high: number | null = null): Fact => ({
  name,
  value,
  low,
  high,
  unit: "share",
  description: "",
});

const evaluation = (run: string, faithfulness: readonly Fact[]) =>
  ({ run, tokens: 1000, faithfulness, health: [] }) as unknown as EvaluationSummary;

const index = (tokens: number, score: number, entropy: number): Interpretability => ({
  indexed_tokens: tokens,
  index_text: "text",
  label_score: { value: score, standard_error: 0.01, experts: 100 },
  token_entropy: { value: entropy, standard_error: 0.1, experts: 100 },
});

describe("measures besides the loss", () => {
  it("favour a run only if their intervals do not overlap, and agreement counts minus its control", () => {
    const one = evaluation("a", [
      fact("Loss increase", 1, 0, 2),
      fact("KL divergence", 0.3, 0.25, 0.35),
      fact("Jacobian agreement", 0.5, 0.49, 0.51),
      fact("Jacobian control", 0.29, 0.28, 0.3),
    ]);
    const other = evaluation("b", [
      fact("Loss increase", 9, 8, 10),
      fact("KL divergence", 0.2, 0.19, 0.21),
      fact("Jacobian agreement", 0.4, 0.39, 0.41),
      fact("Jacobian control", 0.2, 0.19, 0.21),
    ]);
    expect(metricsVerdict({ one, other })).toBe(
      "In favour of b: KL divergence 30.0 % against 20.0 %. The other metrics are not clear, which does not show that the runs are equal.",
    );
    expect(metricsVerdict({ one: evaluation("a", []), other })).toBeNull();
  });

  it("explain errors that favour different runs", () => {
    const pair = (name: string, one: number, other: number) => ({
      name,
      one: fact(name, one, one - 0.1, one + 0.1),
      other: fact(name, other, other - 0.1, other + 0.1),
    });
    expect(reconstructionNote([pair("Normalised MSE", 0.2, 0.3), pair("Variance explained", 0.8, 0.9)])).toContain(
      "Both can be true",
    );
    expect(reconstructionNote([pair("Normalised MSE", 0.3, 0.2), pair("Variance explained", 0.8, 0.9)])).toBeNull();
  });

  it("name the run whose loss the routing share flatters", () => {
    const [one, other] = [
      evaluation("a", [fact("Routing share", 1, 0.9, 1), fact("Strict routing share", 0.5, 0.4, 0.6)]),
      evaluation("b", [fact("Routing share", 1, 0.9, 1), fact("Strict routing share", 0.9, 0.8, 1)]),
    ];
    expect(routingVerdict({ one, other })).toMatch(/^Strict routing share 50\.0 % .* More of the output of a does not/);
    expect(routingVerdict({ one, other: one })).toContain("comparable");
  });

  it("name the sample of dead experts", () => {
    const run = (name: string, active: number | null) => ({
      name,
      num_experts: 100,
      active_experts: active,
      indexed_tokens: 1000,
    });
    expect(deadVerdict(run("a", 90), run("b", 80))).toBe(
      "10.0 % of the experts of a are active on none of 1,000 indexed tokens; 20.0 % of the experts of b are active on none of 1,000 indexed tokens.",
    );
    expect(deadVerdict(run("a", 90), run("b", null))).toBeNull();
  });

  it("are unfair on indexes of different length", () => {
    const same = interpretabilityVerdict(index(1000, 0.8, 3), index(1000, 0.7, 3.1));
    expect(same).toContain("label score (higher is easier to describe) 0.800 against 0.700, +0.100 (+0.072 to +0.128)");
    expect(same).toContain(
      "token entropy in bits (lower is more specific) 3.00 against 3.10, −0.10 (−0.38 to +0.18, no clear difference)",
    );
    expect(interpretabilityVerdict(index(1000, 0.8, 3), index(500, 0.7, 3))).toContain("Not a fair comparison");
    expect(interpretabilityVerdict(null, index(500, 0.7, 3))).toContain("Not measured");
  });
});

import { describe, expect, it } from "vitest";

import type { EvaluationSummary, Fact, LossDifference } from "@/api/types";

import { deadVerdict, reconstructionNote, routingVerdict } from "./other-measures";

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

describe("measures besides the loss", () => {
  it("explain errors that favour different runs", () => {
    const pair = (name: string, one: number, other: number, error = 0.04) => ({
      name,
      one: fact(name, one, one - 0.04, one + 0.04),
      other: fact(name, other, other - error, other + error),
    });
    expect(reconstructionNote([pair("Normalised MSE", 0.2, 0.3), pair("Variance explained", 0.8, 0.9)])).toContain(
      "Both can be true",
    );
    expect(reconstructionNote([pair("Normalised MSE", 0.3, 0.2), pair("Variance explained", 0.8, 0.9)])).toBeNull();
    const overlapping = [pair("Normalised MSE", 0.2, 0.3, 0.1), pair("Variance explained", 0.8, 0.9)];
    expect(reconstructionNote(overlapping)).toBeNull();
  });

  it("name the run whose loss the routing share lowers, and what follows", () => {
    const [one, other] = [
      evaluation("a", [fact("Routing share", 1, 0.9, 1), fact("Strict routing share", 0.5, 0.4, 0.6)]),
      evaluation("b", [fact("Routing share", 1, 0.9, 1), fact("Strict routing share", 0.9, 0.8, 1)]),
    ];
    const loss = (value: number): LossDifference => ({ value, low: value - 0.1, high: value + 0.1, tokens: 100 });
    const lowered = routingVerdict({ one, other }, null);
    expect(lowered).toMatch(
      /^Strict routing share 50\.0 % .* More of a works without routing, which can lower its loss/,
    );
    expect(lowered).not.toContain("even so");
    expect(routingVerdict({ one, other }, loss(0.05))).toBe(lowered);
    expect(routingVerdict({ one, other }, loss(0.2))).toMatch(/Its loss increase is higher even so\.$/);
    expect(routingVerdict({ one, other }, loss(-0.2))).toMatch(/Part of its advantage can come from this\.$/);
    expect(routingVerdict({ one: other, other: one }, loss(0.2))).toMatch(/More of a .*Part of its advantage/);
    expect(routingVerdict({ one, other: one }, loss(0.2))).toContain("comparable");
    const above = evaluation("c", [fact("Strict routing share", 1.2, 1.1, 1.3)]);
    expect(routingVerdict({ one, other: above }, loss(0.2))).toMatch(/so the shares do not rank the runs\.$/);
  });

  it("compare dead experts only on the same index", () => {
    const run = (name: string, active: number | null, tokens = 1000) => ({
      run: { name, num_experts: 100, active_experts: active, indexed_tokens: tokens },
      index_text: "data/text.jsonl",
    });
    expect(deadVerdict(run("a", 90), run("b", 80))).toBe(
      "10.0 % of the experts of a and 20.0 % of the experts of b are active on none of the same 1,000 tokens of text.jsonl.",
    );
    expect(deadVerdict(run("a", 90), run("b", 80, 500))).toMatch(/^Not comparable, .* 500 tokens of text\.jsonl\.$/);
    expect(deadVerdict(run("a", 90), run("b", null))).toBeNull();
  });
});

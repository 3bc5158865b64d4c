import { describe, expect, it } from "vitest";

import type { EvaluationSummary, Fact } from "@/api/types";

import { commonEvaluation, factPairs } from "./common-evaluation";

const evaluation = (run: string, text: string, tokens = 100): EvaluationSummary => ({
  run,
  text,
  tokens,
  sequences: 1,
  created_at: "2026-01-01T00:00:00Z",
  seen_text: false,
  faithfulness: [],
  health: [],
  warnings: [],
});

const fact = (name: string, value: number): Fact => ({ name, value, unit: "nats", description: "" });

describe("evaluations of two runs", () => {
  it("are compared on the newest common text", () => {
    const found = commonEvaluation(
      [evaluation("a", "new"), evaluation("a", "old")],
      [evaluation("b", "old"), evaluation("b", "older")],
    );
    expect([found?.one.text, found?.other.run]).toEqual(["old", "b"]);
  });

  it("are not compared on different texts or numbers of tokens", () => {
    expect(commonEvaluation([evaluation("a", "new")], [evaluation("b", "old")])).toBeNull();
    expect(commonEvaluation([evaluation("a", "new", 100)], [evaluation("b", "new", 200)])).toBeNull();
    expect(commonEvaluation([], [evaluation("b", "old")])).toBeNull();
  });

  it("are paired by metric", () => {
    const pairs = factPairs([fact("KL", 1), fact("L0", 2)], [fact("L0", 3), fact("Rank", 4)]);
    expect(pairs.map(({ name, one, other }) => [name, one.value, other.value])).toEqual([["L0", 2, 3]]);
  });
});

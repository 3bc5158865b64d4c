import { describe, expect, it } from "vitest";

import type { RunDetail } from "@/api/types";

import { comparedFacts } from "./compared-facts";

const DETAIL: RunDetail = {
  run: {
    name: "a",
    status: "finished",
    language_model: "folder/gpt2",
    language_model_name: "gpt2",
    layer: 3,
    method: "mxd",
    activation: "gelu",
    num_experts: 4096,
    k: 16,
    min_k: null,
    has_top_k: true,
    hidden_width: 512,
    parameters: 1_500_000,
    origin: null,
    text: "folder/text.jsonl",
    seed: 0,
    target_tokens: 1000,
    trained_tokens: 1000,
    started_at: "2026-01-01T00:00:00Z",
    updated_at: "2026-01-01T00:00:00Z",
    last_metric: null,
    indexed_tokens: null,
    active_experts: null,
    mixing: "centred",
    routing_share: null,
    routing_share_tokens: null,
    strict_routing_share: null,
    held_out: null,
    evaluated_k: [],
  },
  input_width: 16,
  output_width: 16,
  context_length: 128,
  error: null,
  resume_command: "",
  index_text: null,
  config: { name: "a", seed: 0, "optimizer.learning_rate": 1e-3, "text.context_length": 128 },
  metrics: [],
};

function other(run: Partial<RunDetail["run"]>, config: RunDetail["config"] = {}): RunDetail {
  return { ...DETAIL, run: { ...DETAIL.run, ...run }, config: { ...DETAIL.config, ...config } };
}

const differing = (detail: RunDetail) => comparedFacts(DETAIL, detail).filter((fact) => fact.differs);

describe("properties of two runs", () => {
  it("do not differ for identical runs", () => {
    expect(differing(DETAIL)).toEqual([]);
    expect(comparedFacts(DETAIL, DETAIL)).toContainEqual({
      name: "Experts N",
      one: "4,096",
      other: "4,096",
      differs: false,
    });
  });

  it("are marked where they differ, without repeating settings", () => {
    const facts = differing(other({ k: 32, seed: 1 }, { name: "b", seed: 1, k: 32 }));
    expect(facts.map(({ name, one, other: two }) => [name, one, two])).toEqual([
      ["Active K", "16", "32"],
      ["Seed", "0", "1"],
    ]);
  });

  it("show whole numbers where rounded ones look the same", () => {
    expect(comparedFacts(DETAIL, other({ parameters: 1_500_100 }))).toContainEqual({
      name: "Parameters",
      one: "1,500,000",
      other: "1,500,100",
      differs: false,
    });
  });

  it("differ in size beyond 1 %", () => {
    expect(differing(other({ parameters: 1_510_000 }))).toEqual([]);
    expect(differing(other({ parameters: 1_600_000 })).map(({ name }) => name)).toEqual(["Parameters"]);
  });

  it("are compared by full name, though only its end is shown", () => {
    expect(differing(other({ language_model: "elsewhere/gpt2" }))).toEqual([
      { name: "Language model", one: "gpt2", other: "gpt2", differs: true },
    ]);
  });

  it("treat absolute and relative paths of a folder as the same", () => {
    expect(differing(other({ language_model: "/data/folder/gpt2", text: "text.jsonl" }))).toEqual([]);
  });

  it("end with the other settings that differ", () => {
    const facts = differing(other({}, { "optimizer.learning_rate": 3e-3, init: "random" }));
    expect(facts).toEqual([
      { name: "Initialisation", one: "none", other: "random", differs: true },
      { name: "Learning rate", one: "0.001", other: "0.003", differs: true },
    ]);
  });
});

import { describe, expect, it } from "vitest";

import type { RunDetail } from "@/api/types";

import { comparedFacts } from "./compared-facts";

const DETAIL: RunDetail = {
  run: {
    name: "a",
    status: "finished",
    language_model: "folder/gpt2",
    layer: 3,
    last_layer: 3,
    method: "mxd",
    activation: "gelu",
    num_experts: 4096,
    k: 16,
    smallest_k: null,
    has_top_k: true,
    gate: "flat",
    hidden_width: 512,
    parameters: 1_500_000,
    origin: null,
    text: "folder/text.jsonl",
    seed: 0,
    tokens_wanted: 1000,
    tokens_done: 1000,
    started_at: "2026-01-01T00:00:00Z",
    updated_at: "2026-01-01T00:00:00Z",
    last_metric: null,
    indexed_tokens: null,
    experts_active: null,
  },
  input_width: 16,
  output_width: 16,
  context: 128,
  error: null,
  resume_command: "",
  index_text: null,
  config: { name: "a", seed: 0, "optimizer.learning_rate": 1e-3, "text.context": 128 },
  metrics: [],
};

function other(run: Partial<RunDetail["run"]>, config: RunDetail["config"] = {}): RunDetail {
  return { ...DETAIL, run: { ...DETAIL.run, ...run }, config: { ...DETAIL.config, ...config } };
}

const differing = (detail: RunDetail) => comparedFacts(DETAIL, detail).filter((fact) => fact.differs);

describe("facts of two runs", () => {
  it("differ in nothing where the runs are alike", () => {
    expect(differing(DETAIL)).toEqual([]);
    expect(comparedFacts(DETAIL, DETAIL)).toContainEqual({
      name: "Experts N",
      one: "4,096",
      other: "4,096",
      differs: false,
    });
  });

  it("are marked where they differ, and a setting that stands among them is not told twice", () => {
    const facts = differing(other({ k: 32, seed: 1 }, { name: "b", seed: 1, k: 32 }));
    expect(facts.map(({ name, one, other: two }) => [name, one, two])).toEqual([
      ["Active K", "16", "32"],
      ["Seed", "0", "1"],
    ]);
  });

  it("differ by the whole name, though only its end is shown", () => {
    expect(differing(other({ language_model: "elsewhere/gpt2" }))).toEqual([
      { name: "Language model", one: "gpt2", other: "gpt2", differs: true },
    ]);
  });

  it("are the same where one folder is named in full and from the data folder", () => {
    expect(differing(other({ language_model: "/data/folder/gpt2", text: "text.jsonl" }))).toEqual([]);
  });

  it("have the other settings that differ at their end", () => {
    const facts = differing(other({}, { "optimizer.learning_rate": 3e-3, start: "paper" }));
    expect(facts).toEqual([
      { name: "optimizer.learning rate", one: "0.001", other: "0.003", differs: true },
      { name: "start", one: "none", other: "paper", differs: true },
    ]);
  });
});

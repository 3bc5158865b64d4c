import { describe, expect, it } from "vitest";

import type { ExpertRow } from "@/api/types";

import { rankExperts } from "./use-experts";

function row(expert: number, entropy: number, tokens: string[], label: string | null = null): ExpertRow {
  return {
    expert,
    label,
    tags: [],
    automatic: null,
    density: 0.001,
    active_tokens: 100,
    mean_activation: 1,
    max_activation: 5,
    p99: 4,
    entropy,
    loss_increase: null,
    kl_amplified: null,
    output_share: null,
    input_dependence: null,
    steerability: null,
    activation_per_token: 0.001,
    top_tokens: tokens.map((text, id) => ({ id, text, count: 1, share: 0.1 })),
    histogram: [1],
    recurrence: null,
    compared_runs: null,
    histogram_high: 5,
  };
}

const order = (rows: ExpertRow[]) => rankExperts(rows).map((each) => each.expert);

describe("the expert to show first", () => {
  it("has a user label", () => {
    expect(order([row(1, 2.5, [" may"]), row(2, 9, [","], "Commas")])).toEqual([2, 1]);
  });

  it("fires on a few words, rather than on punctuation or on everything", () => {
    const words = [" may", " might", " perhaps"];
    expect(order([row(1, 0, [","]), row(2, 2.4, words), row(3, 8, words)])[0]).toBe(2);
  });

  it("is undefined for an empty list", () => {
    expect(order([])).toEqual([]);
  });
});

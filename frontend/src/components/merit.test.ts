import { describe, expect, it } from "vitest";

import type { ExpertRow } from "@/api/types";

import { byMerit } from "./merit";

function row(expert: number, entropy: number, tokens: string[], label: string | null = null): ExpertRow {
  return {
    expert,
    label,
    tags: [],
    automatic: null,
    usage: 0.001,
    active_tokens: 100,
    mean: 1,
    largest: 5,
    p99: 4,
    entropy,
    measured: false,
    added_loss: 0,
    kl_up: 0,
    output_share: 0,
    input_dependence: 0,
    top_tokens: tokens.map((text, id) => ({ id, text, count: 1, share: 0.1 })),
    histogram: [1],
    histogram_high: 5,
  };
}

const order = (rows: ExpertRow[]) => byMerit(rows).map((each) => each.expert);

describe("the expert to show first", () => {
  it("is one that somebody has named", () => {
    expect(order([row(1, 2.5, [" may"]), row(2, 9, [","], "Commas")])).toEqual([2, 1]);
  });

  it("fires on a few words, rather than on one sign or on everything", () => {
    const words = [" may", " might", " perhaps"];
    expect(order([row(1, 0, [","]), row(2, 2.4, words), row(3, 8, words)])[0]).toBe(2);
  });

  it("copes with nothing", () => {
    expect(order([])).toEqual([]);
  });
});

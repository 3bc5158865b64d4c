import { describe, expect, it } from "vitest";

import type { RunDetail } from "@/api/types";

import { fairness, unfairDifferences } from "./fairness";

const RUN = { layer: 3, trained_tokens: 5e6, parameters: 2_600_000, k: 16 } as RunDetail["run"];

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

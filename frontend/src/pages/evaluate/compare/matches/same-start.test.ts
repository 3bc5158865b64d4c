import { describe, expect, it } from "vitest";

import type { ComparedExpert, RunComparison } from "@/api/types";

import { sameStart } from "./same-start";

const expert = (id: number): ComparedExpert => ({
  expert: id,
  label: null,
  automatic: null,
  density: 0.1,
  top_tokens: [],
});

/** A comparison in which this number of 100 pairs have the same id. */
const comparison = (same: number, others: number): RunComparison => ({
  run: "a",
  other: "b",
  by: "gate",
  active: 100,
  other_active: others,
  mutual_share: 0.5,
  median_cosine: 0.5,
  chance_cosine: 0.1,
  pairs: Array.from({ length: 100 }, (_, i) => ({
    one: expert(i),
    other: expert(i < same ? i : i + 1),
    cosine: 0.5,
    mutual: true,
  })),
});

describe("pairs with the same id", () => {
  it("show a common start if there are many more than by chance", () => {
    expect(sameStart(comparison(60, 1000))).toMatchObject({ numSame: 60, byChance: 0.1 });
    expect(sameStart(comparison(60, 1000))?.rest).toHaveLength(40);
  });

  it("show none if there are few", () => {
    expect(sameStart(comparison(1, 1000))).toBeNull();
    expect(sameStart(comparison(0, 1000))).toBeNull();
    expect(sameStart(comparison(8, 50))).toBeNull();
  });
});

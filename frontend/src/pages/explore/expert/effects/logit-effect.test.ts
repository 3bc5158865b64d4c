import { describe, expect, it } from "vitest";

import { exceedsBaseline, largestEffect } from "./logit-effect";

const effect = (...changes: readonly number[]) => ({
  promoted: changes.map((change, id) => ({ id, text: String(id), change })),
});

describe("direct logit effect", () => {
  it("is the largest rise", () => {
    expect(largestEffect(effect(0.1, 0.4))).toBe(0.4);
    expect(largestEffect(effect())).toBe(0);
  });

  it("counts if it is twice that of the baseline, or if there is none", () => {
    expect(exceedsBaseline(effect(0.4), effect(0.2))).toBe(true);
    expect(exceedsBaseline(effect(0.39), effect(0.2))).toBe(false);
    expect(exceedsBaseline(effect(0), null)).toBe(true);
  });
});

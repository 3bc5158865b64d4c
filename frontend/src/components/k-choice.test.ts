import { describe, expect, it } from "vitest";

import type { RunSummary } from "@/api/types";

import { chosenK, fittedKs } from "./k-choice";

const RUN = { k: 16, smallest_k: 2, has_top_k: true } as RunSummary;

describe("the number of experts of a token", () => {
  it("is asked for where it is not the run's own", () => {
    expect(chosenK(RUN, 4)).toBe(4);
    expect(chosenK(RUN, 16)).toBeNull();
    expect(chosenK(RUN, null)).toBeNull();
  });

  it("is asked for above the run's own too, so that the server says what is wrong with it", () => {
    expect(chosenK(RUN, 17)).toBe(17);
  });

  it("is not asked of a gate that has none to choose", () => {
    expect(chosenK({ ...RUN, has_top_k: false }, 4)).toBeNull();
  });

  it("says for which numbers a run was fitted", () => {
    expect(fittedKs(RUN)).toBe("fitted for 2 to 16");
    expect(fittedKs({ ...RUN, smallest_k: null })).toBe("fitted for 16 alone");
  });
});

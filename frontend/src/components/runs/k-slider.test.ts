import { describe, expect, it } from "vitest";

import type { RunSummary } from "@/api/types";

import { effectiveK, describeTrainedK } from "./k-slider";

const RUN = { k: 16, min_k: 2, has_top_k: true } as RunSummary;

describe("active experts per token", () => {
  it("are only sent if they differ from the run's own K", () => {
    expect(effectiveK(RUN, 4)).toBe(4);
    expect(effectiveK(RUN, 16)).toBeNull();
    expect(effectiveK(RUN, null)).toBeNull();
  });

  it("are sent above the run's own K too, so that the server reports the error", () => {
    expect(effectiveK(RUN, 17)).toBe(17);
  });

  it("are not sent for gates without top-K", () => {
    expect(effectiveK({ ...RUN, has_top_k: false }, 4)).toBeNull();
  });

  it("describe the K the run was trained for", () => {
    expect(describeTrainedK(RUN)).toBe("trained for K = 2 to 16");
    expect(describeTrainedK({ ...RUN, min_k: null })).toBe("trained at K = 16");
  });
});

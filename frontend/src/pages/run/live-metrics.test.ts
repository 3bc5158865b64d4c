import { describe, expect, it } from "vitest";

import type { MetricPoint, RunDetail } from "@/api/types";

import { withMetric } from "./live-metrics";

const METRIC: MetricPoint = {
  step: 2,
  tokens: 200,
  normalised_mse: 0.5,
  dead_share: 0,
  l0: 16,
  largest_usage: 1,
  tokens_per_second: 10,
  seconds: 1,
};
const DETAIL = { run: { tokens_done: 100, last_metric: null, updated_at: "" }, metrics: [] } as unknown as RunDetail;
const NOW = "2026-01-01T00:00:00Z";

describe("live metrics", () => {
  it("are added with what they say of the run", () => {
    const after = withMetric(DETAIL, { event: "metric", metric: METRIC }, NOW);
    expect(after.metrics).toEqual([METRIC]);
    expect(after.run).toMatchObject({ tokens_done: 200, last_metric: METRIC, updated_at: NOW });
  });

  it("are not added twice", () => {
    const once = withMetric(DETAIL, { event: "metric", metric: METRIC }, NOW);
    expect(withMetric(once, { event: "metric", metric: METRIC }, "later")).toBe(once);
  });
});

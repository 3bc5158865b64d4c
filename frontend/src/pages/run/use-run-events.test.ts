import { describe, expect, it } from "vitest";

import type { MetricPoint, RunDetail } from "@/api/types";
import { withMetric } from "@/pages/run/use-run-events";

const METRIC: MetricPoint = {
  step: 2,
  tokens: 200,
  normalized_mse: 0.5,
  dead_share: 0,
  l0: 16,
  max_density: 1,
  tokens_per_second: 10,
  seconds: 1,
};
const DETAIL = { run: { trained_tokens: 100, last_metric: null, updated_at: "" }, metrics: [] } as unknown as RunDetail;
const NOW = "2026-01-01T00:00:00Z";

describe("live metrics", () => {
  it("update the run", () => {
    const after = withMetric(DETAIL, { event: "metric", metric: METRIC }, NOW);
    expect(after.metrics).toEqual([METRIC]);
    expect(after.run).toMatchObject({ trained_tokens: 200, last_metric: METRIC, updated_at: NOW });
  });

  it("are added once", () => {
    const once = withMetric(DETAIL, { event: "metric", metric: METRIC }, NOW);
    expect(withMetric(once, { event: "metric", metric: METRIC }, "later")).toBe(once);
  });
});

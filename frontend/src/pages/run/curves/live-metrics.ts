/** Merges live metrics into a run's details. */

import type { RunEvent } from "@/api/http/stream";
import type { RunDetail } from "@/api/types";

/** @param now arrival time of the metric (ISO 8601), which the metric does not contain */
export function withMetric(detail: RunDetail, event: Extract<RunEvent, { event: "metric" }>, now: string): RunDetail {
  const { metric } = event;
  if (detail.metrics.some((existing) => existing.step === metric.step)) return detail;
  return {
    ...detail,
    run: {
      ...detail.run,
      last_metric: metric,
      trained_tokens: Math.max(detail.run.trained_tokens, metric.tokens),
      updated_at: now,
    },
    metrics: [...detail.metrics, metric],
  };
}

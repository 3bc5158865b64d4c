/** What a run's page knows, with what was measured since. */

import type { RunEvent } from "@/api/stream";
import type { RunDetail } from "@/api/types";

/** @param now when the metric came, as ISO 8601: the metric itself does not say */
export function withMetric(detail: RunDetail, event: Extract<RunEvent, { event: "metric" }>, now: string): RunDetail {
  const { metric } = event;
  if (detail.metrics.some((known) => known.step === metric.step)) return detail;
  return {
    ...detail,
    run: {
      ...detail.run,
      last_metric: metric,
      tokens_done: Math.max(detail.run.tokens_done, metric.tokens),
      updated_at: now,
    },
    metrics: [...detail.metrics, metric],
  };
}

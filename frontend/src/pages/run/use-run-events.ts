/** A run that is training, followed live: each new metric is added to what the page already has. */

import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { runQuery } from "@/api/queries";
import { type RunEvent, streamRunEvents } from "@/api/stream";
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

export function useRunEvents(detail: RunDetail): void {
  const queries = useQueryClient();
  const { name, status } = detail.run;
  const lastStep = useRef(0);
  useEffect(() => {
    lastStep.current = detail.metrics.at(-1)?.step ?? 0;
  });
  useEffect(() => {
    if (status !== "training") return undefined;
    const controller = new AbortController();
    const { queryKey } = runQuery(name);
    const follow = async () => {
      for await (const event of streamRunEvents(name, lastStep.current, controller.signal)) {
        const now = new Date().toISOString();
        if (event.event === "metric") queries.setQueryData(queryKey, (old) => old && withMetric(old, event, now));
        else if (event.status !== "training") break;
      }
      if (controller.signal.aborted) return;
      await Promise.all([queries.invalidateQueries({ queryKey }), queries.invalidateQueries({ queryKey: ["runs"] })]);
    };
    // A lost connection shows as a status that grows old; the next look at the run starts another.
    follow().catch(() => undefined);
    return () => controller.abort();
  }, [name, status, queries]);
}

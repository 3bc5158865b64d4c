/** Streams a training run's metrics into the query cache, reconnecting when the connection is lost. */

import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { type RunEvent, streamRunEvents } from "@/api/http/stream";
import { runQuery } from "@/api/queries";
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

const RETRY_MS = 5000;

const sleep = (milliseconds: number) => new Promise((resolve) => window.setTimeout(resolve, milliseconds));

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
    const consumeEvents = async () => {
      for await (const event of streamRunEvents(name, lastStep.current, controller.signal)) {
        const now = new Date().toISOString();
        if (event.event === "metric") queries.setQueryData(queryKey, (old) => old && withMetric(old, event, now));
        else if (event.status !== "training") break;
      }
      if (controller.signal.aborted) return;
      await Promise.all([queries.invalidateQueries({ queryKey }), queries.invalidateQueries({ queryKey: ["runs"] })]);
    };
    const followWithRetries = async () => {
      while (!controller.signal.aborted) {
        const isLost = await consumeEvents().then(
          () => false,
          () => true,
        );
        if (!isLost) return;
        await sleep(RETRY_MS);
      }
    };
    void followWithRetries();
    return () => controller.abort();
  }, [name, status, queries]);
}

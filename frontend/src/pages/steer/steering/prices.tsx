/** Measures the prices of edits on request. One of a saved session or measured before is known. */

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

import { streamPrice } from "@/api/http";
import { priceQuery, sessionsQuery } from "@/api/queries";
import type { EditPrice, PriceDoneEvent, PriceEvent, StepEvent } from "@/api/types";
import { Button } from "@/components/ui/button";
import { Remaining } from "@/components/ui/remaining";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { type Edit, formatEdits, toHttpEdit } from "@/lib/edits/edits";

import { requestEdits } from "./steering-params";

/** Conditions may not hold on other text. */
const hasPrice = (edits: readonly Edit[]) => edits.length > 0 && edits.every(({ when }) => when === undefined);

/** `groups`: edits with one price each. A change of the edits ends a measurement. */
export function usePrices(run: string, groups: readonly (readonly Edit[])[]) {
  const queries = useQueryClient();
  const requests = groups.map((edits) => edits.map(toHttpEdit));
  const results = useQueries({ queries: requests.map((edits) => priceQuery(run, edits)) });
  const saved = useQuery(sessionsQuery(run)).data?.sessions.filter(({ price }) => price !== null);
  const keys = groups.map(formatEdits);
  const allKeys = keys.join(" ");
  const prices = results.map(({ data }, i): EditPrice | null => {
    const session = saved?.find(({ edits }) => formatEdits(requestEdits(edits)) === keys[i]);
    return data ?? session?.price ?? null;
  });
  /** The groups without a price, or with one of an earlier version, which has no paired interval. */
  const missing = prices.flatMap((price, i) => (price?.difference_error == null ? i : []));
  async function* measured(indices: readonly number[], signal: AbortSignal): AsyncGenerator<PriceEvent> {
    for (const [i, index] of indices.entries())
      for await (const event of streamPrice(run, { edits: requests[index] ?? [] }, signal)) {
        if (event.event === "done") queries.setQueryData(priceQuery(run, requests[index] ?? []).queryKey, event.price);
        if (event.event === "progress")
          yield { ...event, done: i * event.total + event.done, total: indices.length * event.total };
        else if (event.event === "error" || i === indices.length - 1) yield event;
      }
  }
  const work = useStreamedWork<readonly number[], StepEvent, PriceDoneEvent>(measured, () => undefined);
  const { stop } = work;
  useEffect(() => stop, [run, allKeys, stop]);
  return {
    ...work,
    prices,
    missing: missing.length,
    canMeasure: groups.some(hasPrice),
    hint: "On unrelated text and a 200-item ability test, beside random experts: about half a minute per edit on a CPU.",
    isWorking: work.status === "working",
    measure: () => work.start(missing),
  };
}

export type Prices = ReturnType<typeof usePrices>;

const ITEMS_PER_STEP = 4;

/** The button that measures what is missing, with progress; it stops what it started. */
export function MeasurePrices({ costs, name }: { readonly costs: Prices; readonly name: string }) {
  const { isWorking, failure, progress } = costs;
  const { done = 0, total = 0 } = progress ?? {};
  return (
    <>
      <Button
        size="small"
        icon={isWorking ? "stop" : "probing"}
        title={costs.hint}
        disabled={!costs.canMeasure}
        onClick={isWorking ? costs.stop : costs.measure}
      >
        {isWorking ? "Stop" : name}
      </Button>
      {isWorking && (
        <label className="dim">
          <progress {...(done > 0 && { value: done / total })} /> {done} of {total || "…"} texts
          <Remaining done={done} total={total} every={ITEMS_PER_STEP} />
        </label>
      )}
      {failure !== null && <span className="bad">{failure}</span>}
    </>
  );
}

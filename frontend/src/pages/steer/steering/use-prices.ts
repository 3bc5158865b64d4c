/** Measures the prices of edits, one after the other. A measured one stays as long as the dashboard is open. */

import { useQueries, useQueryClient } from "@tanstack/react-query";

import { streamPrice } from "@/api/http";
import { priceQuery } from "@/api/queries";
import type { EditPrice, ErrorEvent, PriceProgressEvent, PriceRequest } from "@/api/types";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { type Edit, toHttpEdit } from "@/lib/edits/edits";

interface AllDone {
  readonly event: "done";
}

/** `groups`: the edits that have one price each, in the order of their measurement. */
export function usePrices(run: string, groups: readonly (readonly Edit[])[]) {
  const queries = useQueryClient();
  const requests = groups.map((edits): PriceRequest => ({ edits: edits.map(toHttpEdit) }));
  const results = useQueries({ queries: requests.map(({ edits }) => priceQuery(run, edits)) });
  const prices = results.map(({ data }): EditPrice | null => data ?? null);
  async function* measureAll(
    wanted: readonly PriceRequest[],
    signal: AbortSignal,
  ): AsyncGenerator<PriceProgressEvent | AllDone | ErrorEvent> {
    for (const request of wanted) {
      for await (const event of streamPrice(run, request, signal)) {
        if (event.event === "done") queries.setQueryData(priceQuery(run, request.edits).queryKey, event.price);
        else yield event;
      }
    }
    yield { event: "done" };
  }
  const work = useStreamedWork<readonly PriceRequest[], PriceProgressEvent, AllDone>(measureAll, () => undefined);
  return {
    ...work,
    prices,
    /** Index of the group that is being measured; -1 for none. */
    working: work.status === "working" ? prices.indexOf(null) : -1,
    measure: () => work.start(requests.filter((_, i) => prices[i] === null)),
  };
}

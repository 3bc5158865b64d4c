/** Measures the prices of edits, one after the other. A measured one stays as long as the dashboard is open. */

import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { streamPrice } from "@/api/http";
import { priceQuery } from "@/api/queries";
import type { EditPrice, ErrorEvent, StepEvent } from "@/api/types";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { type Edit, isNeutral, toHttpEdit } from "@/lib/edits/edits";

interface AllDone {
  readonly event: "done";
}

/** Conditions may not hold on other text. */
export const hasPrice = (edits: readonly Edit[]) => edits.length > 0 && edits.every(({ when }) => when === undefined);

/** `groups`: edits with one price each. Group `automatic` is measured at once, if it has an effect, until it changes. */
export function usePrices(run: string, groups: readonly (readonly Edit[])[], automatic = -1) {
  const queries = useQueryClient();
  const requests = groups.map((edits) => edits.map(toHttpEdit));
  const results = useQueries({ queries: requests.map((edits) => priceQuery(run, edits)) });
  const prices = results.map(({ data }): EditPrice | null => data ?? null);
  const [current, setCurrent] = useState(-1);
  async function* measureAll(
    wanted: readonly number[],
    signal: AbortSignal,
  ): AsyncGenerator<StepEvent | AllDone | ErrorEvent> {
    for (const index of wanted) {
      setCurrent(index);
      const edits = requests[index] ?? [];
      for await (const event of streamPrice(run, { edits }, signal)) {
        if (event.event === "done") queries.setQueryData(priceQuery(run, edits).queryKey, event.price);
        else yield event;
      }
    }
    yield { event: "done" };
  }
  const work = useStreamedWork<readonly number[], StepEvent, AllDone>(measureAll, () => undefined);
  const wanted = groups[automatic] ?? [];
  useEffect(() => {
    if (!hasPrice(wanted) || wanted.every(isNeutral) || prices[automatic] !== null) return undefined;
    work.start([automatic]);
    return work.stop;
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each group
  }, [run, JSON.stringify(wanted)]);
  return {
    ...work,
    prices,
    /** Index of the group that is being measured; -1 for none. */
    working: work.status === "working" ? current : -1,
    measure: () => work.start(prices.flatMap((price, i) => (price === null ? i : []))),
  };
}

export type Prices = ReturnType<typeof usePrices>;

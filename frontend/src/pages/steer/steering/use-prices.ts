/** Measures the prices of edits on request. One of a saved session or measured before is known. */

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { streamPrice } from "@/api/http";
import { priceQuery, sessionsQuery } from "@/api/queries";
import type { EditPrice, PriceDoneEvent, StepEvent } from "@/api/types";
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
  const [current, setCurrent] = useState(-1);
  const work = useStreamedWork<number, StepEvent, PriceDoneEvent>(
    (index, signal) => streamPrice(run, { edits: requests[index] ?? [] }, signal),
    ({ price }, index) => void queries.setQueryData(priceQuery(run, requests[index] ?? []).queryKey, price),
  );
  const { stop } = work;
  useEffect(() => stop, [run, allKeys, stop]);
  return {
    ...work,
    prices,
    canMeasure: groups.some(hasPrice),
    hint: "On unrelated text and a 200-item ability test, beside random experts: about half a minute on a CPU.",
    /** Index of the group that is being measured; -1 for none. */
    working: work.status === "working" ? current : -1,
    measure: (index = 0) => {
      setCurrent(index);
      work.start(index);
    },
  };
}

export type Prices = ReturnType<typeof usePrices>;

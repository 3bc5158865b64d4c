/** Queries about pairs of runs. */

import { queryOptions } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";

const STALE_MS = 5 * 60_000;

/** Each expert of a run, matched to the most similar expert of another run. */
export function comparisonQuery(run: string, other: string) {
  return queryOptions({
    queryKey: ["run", run, "comparison", other],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/comparison/{other}", { params: { path: { run, other } }, signal })),
    staleTime: STALE_MS,
  });
}

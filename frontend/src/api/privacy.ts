/** Queries of the Privacy page. */

import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";

/** Privacy fine-tunes that started from this run, newest first. */
export function privacyQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "privacy"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/privacy", { params: { path: { run } }, signal })),
  });
}

/** Confidence on each token of a text with two sets of runs. The text leaves the cache soon after the page closes. */
export function tokenConfidenceQuery(before: readonly string[], after: readonly string[], text: string) {
  const body = { before: [...before], after: [...after], text };
  return queryOptions({
    queryKey: ["run", after[0], "sure-tokens", body],
    queryFn: text === "" ? skipToken : ({ signal }) => unwrap(client.POST("/api/privacy/tokens", { body, signal })),
    staleTime: Infinity,
    gcTime: 60_000,
    placeholderData: keepPreviousData,
  });
}

/** URL of a run's bundle: the run with its index and annotations. */
export const bundleUrl = (run: string) => `/api/runs/${encodeURIComponent(run)}/bundle`;

/** What the Privacy page asks the server for. */

import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./client";

/** What protects passages and began as this run, the newest first. */
export function privacyQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "privacy"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/privacy", { params: { path: { run } }, signal })),
  });
}

/** How sure each token of a text is with two sets of runs. The text is kept for as long as the page is open. */
export function sureTokensQuery(before: readonly string[], after: readonly string[], text: string) {
  const body = { before: [...before], after: [...after], text };
  return queryOptions({
    queryKey: ["run", after[0], "sure-tokens", body],
    queryFn: text === "" ? skipToken : ({ signal }) => unwrap(client.POST("/api/privacy/tokens", { body, signal })),
    staleTime: Infinity,
    gcTime: 60_000,
    placeholderData: keepPreviousData,
  });
}

/** Where the file is that holds a run and all that is known of it. */
export const bundleAddress = (run: string) => `/api/runs/${encodeURIComponent(run)}/bundle`;

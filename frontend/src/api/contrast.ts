/** Query of the Contrast page. */

import { queryOptions } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";

/** Kinds of the documents of a run's text. */
export function kindsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "kinds"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/kinds", { params: { path: { run } }, signal })),
    staleTime: Infinity,
  });
}

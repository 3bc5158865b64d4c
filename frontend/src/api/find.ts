/** Queries of the search by effect. They take seconds, so responses are cached. */

import { queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";
import type { components } from "./schema";

const MINUTE = 60_000;

export type FindRequest = components["schemas"]["FindRequest"];
export type FindResponse = components["schemas"]["FindResponse"];
export type FoundExpert = components["schemas"]["FoundExpert"];

/** Experts that make wanted text more probable; disabled without a request, here and below. */
export function findQuery(request: FindRequest | null) {
  return queryOptions({
    queryKey: ["run", request?.runs[0], "find", request],
    queryFn: request === null ? skipToken : ({ signal }) => unwrap(client.POST("/api/find", { body: request, signal })),
    staleTime: 5 * MINUTE,
  });
}

/** Measured price of each found expert. */
export function pricesQuery(request: FindRequest | null, experts: readonly FoundExpert[]) {
  const groups = experts.map(({ edit }) => [edit]);
  return queryOptions({
    queryKey: ["run", request?.runs[0], "find-effects", request, groups],
    queryFn:
      request === null || groups.length === 0
        ? skipToken
        : ({ signal }) => unwrap(client.POST("/api/find/effects", { body: { ...request, groups }, signal })),
    staleTime: 5 * MINUTE,
  });
}

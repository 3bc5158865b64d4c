/** Queries of the search by effect. They take seconds, so responses are cached. Without a request they are disabled. */

import { queryOptions, skipToken } from "@tanstack/react-query";

import { post } from "./http/client";
import { MINUTE } from "./queries";
import type { FindRequest, FoundExpert } from "./types";

/** Experts that make wanted text more probable. */
export const findQuery = (request: FindRequest | null) =>
  queryOptions({
    queryKey: ["run", request?.runs[0], "find", request],
    queryFn: request === null ? skipToken : post("/api/find", request),
    staleTime: 5 * MINUTE,
  });

/** Measured price of each found expert. */
export function pricesQuery(request: FindRequest | null, experts: readonly FoundExpert[]) {
  const groups = experts.map(({ edit }) => [edit]);
  return queryOptions({
    queryKey: ["run", request?.runs[0], "find-effects", request, groups],
    queryFn: request === null || groups.length === 0 ? skipToken : post("/api/find/effects", { ...request, groups }),
    staleTime: 5 * MINUTE,
  });
}

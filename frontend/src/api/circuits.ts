/** Queries of the Circuits page. Tracing takes seconds, so responses are cached. */

import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";

const MINUTE = 60_000;

/** The logit to explain. */
export interface CircuitRequest {
  /** At most one run per layer; the first is the page's own run. */
  readonly runs: readonly string[];
  readonly text: string;
  readonly target: number | null;
  readonly position: number | null;
  readonly errors: "kept" | "dropped";
}

export interface AblatedExpert {
  readonly run: string;
  readonly position: number;
  readonly expert: number;
}

export function circuitQuery(request: CircuitRequest, nodes: number) {
  const body = { ...request, runs: [...request.runs], nodes };
  return queryOptions({
    queryKey: ["run", request.runs[0], "circuit", body],
    queryFn: request.text === "" ? skipToken : ({ signal }) => unwrap(client.POST("/api/circuits", { body, signal })),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** Measured effect of ablating each group of experts; disabled while there are no groups. */
export function circuitEffectsQuery(request: CircuitRequest, groups: readonly (readonly AblatedExpert[])[]) {
  const body = { ...request, runs: [...request.runs], groups: groups.map((group) => [...group]) };
  return queryOptions({
    queryKey: ["run", request.runs[0], "circuit-effects", body],
    queryFn:
      groups.length === 0 ? skipToken : ({ signal }) => unwrap(client.POST("/api/circuits/effects", { body, signal })),
    staleTime: 5 * MINUTE,
  });
}

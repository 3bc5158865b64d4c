/** Queries of the Circuits page. Tracing and checking take seconds, so responses are cached. */

import { queryOptions, skipToken } from "@tanstack/react-query";

import { post } from "./http/client";
import { MINUTE } from "./queries";
import type { CircuitEffectsRequest, CircuitGraph, CircuitRequest } from "./types";

/** The circuit of a prompt, with predicted effects. The first run is the page's own; at most one per layer. */
export const circuitQuery = (request: CircuitRequest | null) =>
  queryOptions({
    queryKey: ["run", request?.runs[0], "circuit", request],
    queryFn: request === null ? skipToken : post("/api/circuits", request),
    staleTime: 5 * MINUTE,
  });

/** Measured changes when groups of experts are ablated; disabled without a request. */
export const circuitEffectsQuery = (request: CircuitEffectsRequest | null) =>
  queryOptions({
    queryKey: ["run", request?.runs[0], "circuit-effects", request],
    queryFn: request === null ? skipToken : post("/api/circuits/effects", request),
    staleTime: 5 * MINUTE,
  });

/** The measured effects of a circuit. */
export const circuitCheckQuery = (request: CircuitRequest, graph: CircuitGraph) =>
  queryOptions({
    queryKey: ["run", request.runs[0], "circuit-check", request],
    queryFn: post("/api/circuits/check", { ...request, graph }),
    staleTime: 5 * MINUTE,
  });

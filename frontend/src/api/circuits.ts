/** Queries of the Circuits page. Tracing and checking take seconds, so responses are cached. */

import { queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";
import type { CircuitCheck, CircuitGraph } from "./types";
import type { components } from "./schema";

const MINUTE = 60_000;

export type CircuitTarget = CircuitGraph["target"];

export interface CircuitRequest {
  /** At most one run per layer; the first is the page's own run. */
  readonly runs: readonly string[];
  readonly text: string;
  readonly target: CircuitTarget;
  readonly position: number | null;
  readonly errors: "kept" | "dropped";
  readonly nodes: number;
}

export const bodyOf = (request: CircuitRequest): components["schemas"]["CircuitRequest"] => ({
  ...request,
  runs: [...request.runs],
});

/** The circuit of a prompt, with predicted effects. */
export function circuitQuery(request: CircuitRequest | null) {
  return queryOptions({
    queryKey: ["run", request?.runs[0], "circuit", request],
    queryFn:
      request === null
        ? skipToken
        : ({ signal }) => unwrap(client.POST("/api/circuits", { body: bodyOf(request), signal })),
    staleTime: 5 * MINUTE,
  });
}

/** Measured changes when groups of experts are ablated; disabled without a request. */
export function circuitEffectsQuery(request: components["schemas"]["CircuitEffectsRequest"] | null) {
  return queryOptions({
    queryKey: ["run", request?.runs[0], "circuit-effects", request],
    queryFn:
      request === null
        ? skipToken
        : ({ signal }) => unwrap(client.POST("/api/circuits/effects", { body: request, signal })),
    staleTime: 5 * MINUTE,
  });
}

/** The measured effects of a circuit. */
export function circuitCheckQuery(request: CircuitRequest, graph: CircuitGraph) {
  return queryOptions({
    queryKey: ["run", request.runs[0], "circuit-check", request],
    queryFn: ({ signal }) =>
      unwrap(client.POST("/api/circuits/check", { body: { ...bodyOf(request), graph }, signal })),
    staleTime: 5 * MINUTE,
  });
}

/** The circuit in the format of Neuronpedia and circuit-tracer. */
export async function circuitFile(graph: CircuitGraph, check: CircuitCheck | null): Promise<Record<string, unknown>> {
  return unwrap(client.POST("/api/circuits/graph", { body: { graph, check } }));
}

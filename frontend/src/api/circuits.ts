/** Queries of the Circuits page. Tracing takes seconds, so responses are cached. */

import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";
import type { components } from "./schema";

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

/** The attribution graph of a prompt. */
export function traceCircuit(request: CircuitRequest, nodes: number, signal: AbortSignal) {
  return unwrap(client.POST("/api/circuits", { body: { ...request, runs: [...request.runs], nodes }, signal }));
}

export function circuitQuery(request: CircuitRequest, nodes: number) {
  return queryOptions({
    queryKey: ["run", request.runs[0], "circuit", request, nodes],
    queryFn: request.text === "" ? skipToken : ({ signal }) => traceCircuit(request, nodes, signal),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

type Groups = readonly (readonly AblatedExpert[])[];

/** Measured effect of ablating each group of experts. */
export function measureEffects(request: CircuitRequest, groups: Groups, signal: AbortSignal) {
  const body = { ...request, runs: [...request.runs], groups: groups.map((group) => [...group]) };
  return unwrap(client.POST("/api/circuits/effects", { body, signal }));
}

/** The same, cached; disabled while there is no request or no group. */
export function circuitEffectsQuery(request: CircuitRequest | null, groups: Groups) {
  return queryOptions({
    queryKey: ["run", request?.runs[0], "circuit-effects", request, groups],
    queryFn:
      request === null || groups.length === 0 ? skipToken : ({ signal }) => measureEffects(request, groups, signal),
    staleTime: 5 * MINUTE,
  });
}

type NodeKey = Required<components["schemas"]["CircuitNodeKey"]>;

/** Heads that carried an edge, and why they looked where they did; disabled while there is no request or no edge. */
export function circuitAttentionQuery(request: CircuitRequest | null, source: NodeKey | null, target: NodeKey | null) {
  const body = request &&
    source &&
    target && { ...request, runs: [...request.runs], source: nodeKey(source), edge_target: nodeKey(target) };
  return queryOptions({
    queryKey: ["run", request?.runs[0], "circuit-attention", body],
    queryFn:
      body === null ? skipToken : ({ signal }) => unwrap(client.POST("/api/circuits/attention", { body, signal })),
    staleTime: 5 * MINUTE,
  });
}

const nodeKey = ({ kind, position, layer, expert }: NodeKey): NodeKey => ({ kind, position, layer, expert });

export type ReadCircuit = components["schemas"]["ReadCircuitResponse"];
/** A graph in the format of Neuronpedia and circuit-tracer, as it is in its file. */
export type GraphFile = Readonly<Record<string, unknown>>;

/** The graph in the common format. */
export async function circuitFile(request: CircuitRequest, nodes: number): Promise<GraphFile> {
  return unwrap(client.POST("/api/circuits/graph", { body: { ...request, runs: [...request.runs], nodes } }));
}

/** A graph of another program, or a saved one. The server checks its form. */
export async function readCircuit(file: GraphFile): Promise<ReadCircuit> {
  return unwrap(client.POST("/api/circuits/read", { body: file as components["schemas"]["ForeignGraph"] }));
}

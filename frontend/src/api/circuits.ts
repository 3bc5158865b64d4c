/** What the Circuits page asks the server for. Both take seconds, so answers are kept and given up with the question. */

import { keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./client";

const MINUTE = 60_000;

/** The logit that is explained. */
export interface CircuitAsked {
  /** One a layer; the first is the one that the page is about. */
  readonly runs: readonly string[];
  readonly text: string;
  readonly target: number | null;
  readonly position: number | null;
  readonly errors: "kept" | "dropped";
}

export interface Switch {
  readonly run: string;
  readonly position: number;
  readonly expert: number;
}

export function circuitQuery(asked: CircuitAsked, nodes: number) {
  const body = { ...asked, runs: [...asked.runs], nodes };
  return queryOptions({
    queryKey: ["run", asked.runs[0], "circuit", body],
    queryFn: asked.text === "" ? skipToken : ({ signal }) => unwrap(client.POST("/api/circuits", { body, signal })),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** Groups of experts switched off, each by itself; nothing is asked for while there is none. */
export function circuitEffectsQuery(asked: CircuitAsked, groups: readonly (readonly Switch[])[]) {
  const body = { ...asked, runs: [...asked.runs], groups: groups.map((group) => [...group]) };
  return queryOptions({
    queryKey: ["run", asked.runs[0], "circuit-effects", body],
    queryFn:
      groups.length === 0 ? skipToken : ({ signal }) => unwrap(client.POST("/api/circuits/effects", { body, signal })),
    staleTime: 5 * MINUTE,
  });
}

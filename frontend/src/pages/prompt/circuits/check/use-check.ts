/** Ablates each expert of a graph by itself, once the graph is drawn. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { type CircuitRequest, circuitEffectsQuery } from "@/api/circuits";
import type { CircuitResponse } from "@/api/types";
import { MAX_GROUPS, ablatedExperts } from "@/pages/prompt/circuits/panel/ablation-groups";

import type { MeasuredEffects } from "./measured";
import type { Agreement } from "./verdict";

export interface Check {
  readonly measured: MeasuredEffects;
  /** Undefined until the effects are measured. */
  readonly agreement: Agreement | undefined;
  /** True while experts are ablated. */
  readonly isMeasuring: boolean;
  readonly error: Error | null;
}

/** Experts times tokens that are computed at once; longer texts check fewer experts, at least as many as r needs. */
const MAX_TOKENS = 8192;
const MIN_CHECKED = 5;

/** The experts that are checked, most influential first. */
export function checkedIds({ graph, ids }: CircuitResponse): readonly string[] {
  const isExpert = (_: string, index: number) => graph.nodes[index]?.kind === "expert";
  const affordable = Math.max(MIN_CHECKED, Math.floor(MAX_TOKENS / graph.tokens.length));
  return ids.filter(isExpert).slice(0, Math.min(MAX_GROUPS, affordable));
}

/** `request` is null while the response belongs to an earlier one. */
export function useCheck(response: CircuitResponse, request: CircuitRequest | null): Check {
  const ids = useMemo(() => checkedIds(response), [response]);
  const groups = useMemo(() => ids.map((id) => ablatedExperts(response, [id])), [response, ids]);
  const target = response.graph.target.id;
  const { data, error, isLoading } = useQuery(
    circuitEffectsQuery(request === null ? null : { ...request, target }, groups),
  );
  const measured = useMemo(
    () =>
      new Map(data?.effects.flatMap((effect, i) => (ids[i] === undefined ? [] : [[ids[i], effect.measured]])) ?? []),
    [data, ids],
  );
  return { measured, agreement: data?.agreement, isMeasuring: isLoading, error };
}

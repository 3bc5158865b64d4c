/** What a chosen cell feeds: later cells whose activation changes when its expert is ablated on its token. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { circuitEffectsQuery } from "@/api/circuits";

import { type Fed, laterCells, strongestFed, type TracedCell, type TraceLayer } from "./trace-rows";

const NONE: readonly Fed[] = [];

/** `fed` is undefined while it is measured, and empty without a chosen cell. */
export function useFeeds(text: string, layers: readonly TraceLayer[], chosen: TracedCell | null) {
  const later = useMemo(() => (chosen === null ? [] : laterCells(layers, chosen)), [layers, chosen]);
  const { data, error } = useQuery(
    circuitEffectsQuery(
      chosen === null || later.length === 0
        ? null
        : {
            runs: layers.map(({ run }) => run),
            text,
            groups: [[chosen]],
            read: later.map(({ run, position, expert }) => ({ run, position, expert })),
          },
    ),
  );
  const fed = useMemo(() => {
    if (later.length === 0) return NONE;
    return data?.activations[0] === undefined ? undefined : strongestFed(later, data.activations[0]);
  }, [later, data]);
  return { fed, error };
}

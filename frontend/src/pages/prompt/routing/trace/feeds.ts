/** What a chosen cell feeds: later cells whose activation changes when its expert is ablated on its token. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { circuitEffectsQuery } from "@/api/circuits";

import type { TracedCell } from "./trace-table";
import type { TraceLayer } from "./trace-rows";

/** A cell, and what the chosen expert adds to its activation. */
export interface Fed extends TracedCell {
  readonly change: number;
  /** Relative to the cell's activation. */
  readonly share: number;
}

/** The most cells that lines lead to, and the smallest relative change. */
const MAX_FED = 12;
const MIN_SHARE = 0.01;
/** The server's limit. */
const MAX_READ = 1024;
const NONE: readonly Fed[] = [];

/** The strongest experts of later layers, on the cell's token and those after it, with their activations. */
export function laterCells(layers: readonly TraceLayer[], { run, position: from }: TracedCell) {
  const own = layers.find((layer) => layer.run === run)?.layer ?? Infinity;
  return layers
    .filter(({ layer }) => layer > own)
    .flatMap(({ run: later, tokens }) =>
      [...tokens].flatMap(([position, [strongest]]) =>
        position < from || strongest === undefined
          ? []
          : [{ run: later, position, expert: strongest.row.expert, activation: strongest.cell.coefficient }],
      ),
    )
    .slice(0, MAX_READ);
}

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

/** The cells with the largest relative changes. `changes`: of their activations when the chosen expert is ablated. */
export function strongestFed(later: ReturnType<typeof laterCells>, changes: readonly number[]): readonly Fed[] {
  return later
    .map(({ activation, ...cell }, index): Fed => {
      const change = -(changes[index] ?? 0);
      return { ...cell, change, share: change / activation };
    })
    .filter(({ share }) => Math.abs(share) >= MIN_SHARE)
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share))
    .slice(0, MAX_FED);
}

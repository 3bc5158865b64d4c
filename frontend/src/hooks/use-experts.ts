/** Experts of a run: their columns, the rows of some, and the most interesting ones. */

import { useInfiniteQuery, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { columnsQuery, type ExpertFilters, expertRowsQuery, expertsQuery } from "@/api/queries";
import type { Column, ExpertRow } from "@/api/types";

export function useColumns(): readonly Column[] {
  return useSuspenseQuery(columnsQuery).data.columns;
}

export function useExpertRows(run: string | null, experts: readonly number[]): ReadonlyMap<number, ExpertRow> {
  const { data } = useQuery(expertRowsQuery(run, experts));
  return new Map(data?.experts.map((row) => [row.expert, row]));
}

export const MODERATE_DENSITY = { min_density: 0.0005, max_density: 0.01 } as const;

/** Entropy in bits of a small group of related tokens; 0 would be a single token. */
const BEST_ENTROPY = 2.5;
const ENTROPY_SPAN = 4;
const IS_WORD = /\p{L}{2,}/u;

function wordShare(row: ExpertRow): number {
  const tokens = row.top_tokens.slice(0, 8);
  return tokens.length === 0 ? 0 : tokens.filter((token) => IS_WORD.test(token.text)).length / tokens.length;
}

function score(row: ExpertRow, strongest: number): number {
  const focus = 1 - Math.abs(row.entropy - BEST_ENTROPY) / ENTROPY_SPAN;
  const labelScore = row.automatic?.is_clear === true ? (row.automatic.balanced_accuracy ?? 0) : 0;
  return row.max_activation / strongest + focus + wordShare(row) + labelScore + (row.label === null ? 0 : 10);
}

/** Experts, most interesting first. */
export function rankExperts(rows: readonly ExpertRow[]): readonly ExpertRow[] {
  const strongest = Math.max(...rows.map((row) => row.max_activation), 1e-9);
  return rows.toSorted((a, b) => score(b, strongest) - score(a, strongest));
}

const CANDIDATES = 200;
const STRONGEST_FIRST: ExpertFilters = { sort: "max_activation", order: "desc" };

/** None of a run without an index. */
export function useBestExperts(run: string, isIndexed = true) {
  const moderateQuery = expertsQuery(run, { ...STRONGEST_FIRST, ...MODERATE_DENSITY }, CANDIDATES);
  const moderate = useInfiniteQuery({ ...moderateQuery, enabled: isIndexed });
  const candidates = moderate.data?.pages[0]?.experts;
  // A small index may have no expert of moderate density; then any active one is shown.
  const anyQuery = expertsQuery(run, { ...STRONGEST_FIRST, min_density: 1e-9 }, CANDIDATES);
  const any = useInfiniteQuery({ ...anyQuery, enabled: candidates?.length === 0 });
  const experts = useMemo(
    () =>
      rankExperts(
        candidates === undefined || candidates.length > 0 ? (candidates ?? []) : (any.data?.pages[0]?.experts ?? []),
      ),
    [candidates, any.data],
  );
  const isPending = moderate.isPending || (candidates?.length === 0 && any.isPending);
  return { experts, isPending, error: moderate.error ?? any.error };
}

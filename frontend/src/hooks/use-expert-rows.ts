/** Rows of some experts by number, as far as they are loaded. */

import { useQueries } from "@tanstack/react-query";

import { expertRowsQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";

interface Asked {
  readonly run: string | null;
  readonly experts: readonly number[];
}

export function useExpertRowsOf(asked: readonly Asked[]): readonly ReadonlyMap<number, ExpertRow>[] {
  const results = useQueries({ queries: asked.map(({ run, experts }) => expertRowsQuery(run, experts)) });
  return results.map(({ data }) => new Map(data?.experts.map((row) => [row.expert, row])));
}

export function useExpertRows(run: string | null, experts: readonly number[]): ReadonlyMap<number, ExpertRow> {
  return useExpertRowsOf([{ run, experts }])[0] ?? new Map();
}

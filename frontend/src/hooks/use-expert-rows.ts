/** Rows of some experts of a run by number, as far as they are loaded. */

import { useInfiniteQuery } from "@tanstack/react-query";

import { expertsQuery } from "@/api/queries";
import type { ExpertRow } from "@/api/types";

const MAX_EXPERTS = 200;

export function useExpertRows(run: string | null, experts: readonly number[]): ReadonlyMap<number, ExpertRow> {
  const filters = { sort: "expert", order: "asc", among: experts.join(",") } as const;
  const { data } = useInfiniteQuery({
    ...expertsQuery(run ?? "", filters, MAX_EXPERTS),
    enabled: run !== null && experts.length > 0,
  });
  return new Map(data?.pages[0]?.experts.map((row) => [row.expert, row]));
}

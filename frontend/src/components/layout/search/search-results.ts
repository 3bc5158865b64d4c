import { useQuery } from "@tanstack/react-query";

import { searchQuery } from "@/api/queries";
import { useCurrentRun } from "@/components/runs/current-run";
import { useDebouncedValue } from "@/hooks/use-debounced-value";

export const SEARCH_LABEL = "Search labels, tokens and examples";

/** Last row of the list of hits: the Search page with all matches, or with the passage run through the model. */
export type PageRow = "words" | "passage";
export const isPageRow = (row: string): row is PageRow => row === "words" || row === "passage";

/** Search hits while typing, for `run` or the current run. */
export function useSearchHits(text: string, run?: string) {
  const current = useCurrentRun();
  const name = run ?? current.name;
  const debounced = useDebouncedValue(text.trim());
  const query = useQuery(searchQuery(name ?? "", name === null ? "" : debounced));
  return { hits: debounced === "" ? [] : (query.data ?? []), debounced, query };
}

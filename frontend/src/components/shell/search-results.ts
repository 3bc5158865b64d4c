/** Search while typing. */

import { useQuery } from "@tanstack/react-query";

import { searchQuery } from "@/api/queries";

import { useCurrentRun } from "../current-run";
import { useSettled } from "../settled";

/** `run`: by default the one that the page is about. */
export function useSearchHits(text: string, run?: string) {
  const current = useCurrentRun();
  const name = run ?? current.name;
  const settled = useSettled(text.trim());
  const query = useQuery(searchQuery(name ?? "", name === null ? "" : settled));
  return { hits: settled === "" ? [] : (query.data?.hits ?? []), settled, query };
}

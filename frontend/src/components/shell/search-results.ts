/** Search while typing. */

import { useQuery } from "@tanstack/react-query";

import { searchQuery } from "@/api/queries";

import { useCurrentRun } from "../current-run";
import { useSettled } from "../settled";

export function useSearchHits(text: string) {
  const { name } = useCurrentRun();
  const settled = useSettled(text.trim());
  const query = useQuery(searchQuery(name ?? "", name === null ? "" : settled));
  return { hits: settled === "" ? [] : (query.data?.hits ?? []), settled, query };
}

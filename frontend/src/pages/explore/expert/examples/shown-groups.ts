/** The example groups on screen, from the query cache. */

import type { QueryClient } from "@tanstack/react-query";

import { examplesQuery, randomExamplesQuery } from "@/api/queries";
import type { ActivationBin, ExpertDetail } from "@/api/types";
import type { Values } from "@/hooks/use-url-state";
import type { ShownGroup } from "@/pages/explore/expert/download/expert-file";
import { type EXPERT_PARAMS, RANDOM_GROUP, showsAll } from "@/pages/explore/expert/expert-params";

import { withoutShown } from "./deduplicate-examples";
import { asRandomGroup, EXAMPLES_PER_PAGE, selectShown, selectShownInBin } from "./shown-examples";

type Params = Pick<Values<typeof EXPERT_PARAMS>, "all" | "open" | "lock" | "seed">;

/** Examples of some bins that have been fetched. */
export function fetchedExamples(queries: QueryClient, run: string, expert: number, bins: readonly number[]) {
  return bins.flatMap((bin) => {
    const { queryKey } = examplesQuery(run, expert, bin, EXAMPLES_PER_PAGE);
    return queries.getQueryData(queryKey)?.pages.flatMap((page) => page.examples) ?? [];
  });
}

export function shownGroups(
  queries: QueryClient,
  run: string,
  { row, bins }: ExpertDetail,
  params: Params,
): readonly ShownGroup[] {
  const { open, lock, seed } = params;
  const groupState = (group: number) => ({ group, isOpen: open.includes(group), locked: lock });
  const top = fetchedExamples(queries, run, row.expert, [0]);
  const binGroup = ({ bin, low, high, share }: ActivationBin): ShownGroup => {
    const fetched = fetchedExamples(queries, run, row.expert, [bin]);
    const stronger = bins.filter((other) => other.bin < bin).map((other) => other.bin);
    const above = fetchedExamples(queries, run, row.expert, stronger);
    const { examples, numDuplicates } = selectShownInBin(fetched, groupState(bin), above);
    return {
      name: bin === 0 ? "top" : `bin ${bin}`,
      low,
      high,
      share,
      examples,
      duplicates: numDuplicates,
    };
  };
  const shown = bins.filter((bin) => bin.examples > 0).map(binGroup);
  if (!showsAll(params)) return shown.slice(0, 1);
  const { queryKey } = randomExamplesQuery(run, row.expert, seed);
  const sample = queries.getQueryData(queryKey)?.examples ?? [];
  const examples = selectShown(withoutShown(asRandomGroup(sample), top), groupState(RANDOM_GROUP));
  return [...shown, { name: "random sample", low: null, high: null, share: null, examples, duplicates: 0 }];
}

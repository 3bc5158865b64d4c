/** Which examples of an expert are shown: without duplicates, the first few of each group, for the page and for files. */

import type { QueryClient } from "@tanstack/react-query";

import { examplesQuery, topExamplesQuery, randomExamplesQuery } from "@/api/queries";
import type { ActivationBin, Example, ExpertDetail } from "@/api/types";
import type { ExampleToken } from "@/components/tokens/concordance";
import type { Values } from "@/hooks/use-url-state";

import type { ShownGroup } from "./download";
import { type EXPERT_PARAMS, RANDOM_GROUP, showsAll } from "./expert-params";

/** Number of tokens on either side that must be equal. */
const RADIUS = 8;

export interface Deduplicated {
  readonly examples: readonly Example[];
  /** Number of duplicates left out. */
  readonly numDuplicates: number;
}

function surroundingTokens(example: Example): string {
  const { position, token_ids } = example;
  return token_ids.slice(Math.max(0, position - RADIUS), position + RADIUS + 1).join(",");
}

/** Whether both are of one sentence, with peaks so close that each shows the other's. */
const overlaps = (one: Example, other: Example) =>
  one.sequence === other.sequence && Math.abs(one.position - other.position) <= RADIUS;

/** The first of each set of duplicates, in order, without those of examples shown `above` and what overlaps with them. */
export function deduplicate(examples: readonly Example[], above: readonly Example[] = []): Deduplicated {
  const seen = new Set(above.map(surroundingTokens));
  const unique = examples.filter((example) => {
    const key = surroundingTokens(example);
    if (seen.has(key) || above.some((other) => overlaps(example, other))) return false;
    seen.add(key);
    return true;
  });
  return { examples: unique, numDuplicates: examples.length - unique.length };
}

/** Leaves out the examples shown `above` and keeps other duplicates, because in a sample their number is informative. */
export function withoutShown(examples: readonly Example[], above: readonly Example[]): readonly Example[] {
  const shown = new Set(above.map(surroundingTokens));
  return examples.filter((example) => !shown.has(surroundingTokens(example)));
}

export const EXAMPLES_PER_PAGE = 30;

/** Number of weaker ranges of which an example is shown, unless all are. */
const WEAKER_RANGES = 4;

interface GroupState {
  readonly group: number;
  readonly isOpen: boolean;
  readonly locked: ExampleToken | null;
  readonly preview: number;
}

/** Number of examples shown while the group is collapsed. */
export function previewCount(group: number, all = true): number {
  if (group !== 0) return group === RANDOM_GROUP ? 8 : 2;
  return all ? 8 : 4;
}

/** Weaker ranges of activations than the top examples', from the strongest to the weakest: a few, or all. */
export function weakerBins(bins: readonly ActivationBin[], all: boolean): readonly ActivationBin[] {
  const [top, ...others] = bins.filter(({ examples }) => examples > 0);
  const weaker = others.filter(({ low }) => all || low < (top?.low ?? 0));
  if (all || weaker.length <= WEAKER_RANGES) return weaker;
  const step = (weaker.length - 1) / (WEAKER_RANGES - 1);
  return Array.from({ length: WEAKER_RANGES }, (_, i) => weaker[Math.round(i * step)]).filter(
    (bin) => bin !== undefined,
  );
}

/** The first few or all fetched examples, in any case down to the one with the locked token. */
export function selectShown(
  examples: readonly Example[],
  { group, isOpen, locked, preview }: GroupState,
): readonly Example[] {
  if (isOpen) return examples;
  const lockedRank = locked?.bin === group ? locked.rank : -1;
  return examples.filter((example, i) => i < preview || example.rank <= lockedRank);
}

/** The examples of a bin without duplicates and without those of stronger bins. */
export function selectShownInBin(
  examples: readonly Example[],
  state: GroupState,
  stronger: readonly Example[] = [],
): Deduplicated {
  const { examples: unique, numDuplicates } = deduplicate(examples, stronger);
  return { examples: selectShown(unique, state), numDuplicates };
}

/** Assign sampled examples to the random group. Duplicates are kept, because their frequency is informative. */
export function asRandomGroup(examples: readonly Example[]): readonly Example[] {
  return examples.map((example, rank) => ({ ...example, bin: RANDOM_GROUP, rank }));
}

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
  const all = showsAll(params);
  const groupState = (group: number) => {
    return { group, isOpen: open.includes(group), locked: lock, preview: previewCount(group, all) };
  };
  const top = fetchedExamples(queries, run, row.expert, [0]);
  const fetchedOf = (bin: number) => {
    const { queryKey } = topExamplesQuery(run, row.expert, 1, bin);
    const fetched = fetchedExamples(queries, run, row.expert, [bin]);
    return fetched.length > 0 ? fetched : (queries.getQueryData(queryKey)?.examples ?? []);
  };
  const binGroup = ({ bin, low, high, share }: ActivationBin): ShownGroup => {
    const stronger = bins.filter((other) => other.bin < bin).map((other) => other.bin);
    const above = fetchedExamples(queries, run, row.expert, stronger);
    const { examples, numDuplicates } = selectShownInBin(fetchedOf(bin), groupState(bin), above);
    return { name: bin === 0 ? "top" : `bin ${bin}`, low, high, share, examples, duplicates: numDuplicates };
  };
  const shown = [...bins.filter(({ bin }) => bin === 0), ...weakerBins(bins, all)].map(binGroup);
  if (!all) return shown;
  const { queryKey } = randomExamplesQuery(run, row.expert, seed);
  const sample = queries.getQueryData(queryKey)?.examples ?? [];
  const examples = selectShown(withoutShown(asRandomGroup(sample), top), groupState(RANDOM_GROUP));
  return [...shown, { name: "random sample", low: null, high: null, share: null, examples, duplicates: 0 }];
}

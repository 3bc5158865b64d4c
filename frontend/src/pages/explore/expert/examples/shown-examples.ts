/** Selects the examples of a group to show, for the page and for the file export. */

import type { Example } from "@/api/types";
import type { ExampleToken } from "@/components/tokens/concordance";
import { RANDOM_GROUP } from "@/pages/explore/expert/expert-params";

import { type Deduplicated, deduplicate } from "./deduplicate-examples";

export const EXAMPLES_PER_PAGE = 30;

const TOP_PREVIEW = 8;
const BIN_PREVIEW = 2;

interface GroupState {
  readonly group: number;
  readonly isOpen: boolean;
  readonly locked: ExampleToken | null;
}

/** Number of examples shown while the group is collapsed. */
export function previewCount(group: number): number {
  return group === 0 || group === RANDOM_GROUP ? TOP_PREVIEW : BIN_PREVIEW;
}

/** The first few or all fetched examples, in any case down to the one with the locked token. */
export function selectShown(examples: readonly Example[], { group, isOpen, locked }: GroupState): readonly Example[] {
  if (isOpen) return examples;
  const lockedRank = locked?.bin === group ? locked.rank : -1;
  return examples.filter((example, i) => i < previewCount(group) || example.rank <= lockedRank);
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

/** Selects the examples of a group to show, for the page and for the file export. */

import type { Context } from "@/api/types";
import type { ContextToken } from "@/components/tokens/concordance";
import { RANDOM_GROUP } from "@/pages/explore/expert/expert-params";

import { type Deduplicated, deduplicate } from "./deduplicate-contexts";

export const CONTEXTS_PER_PAGE = 30;

const TOP_PREVIEW = 8;
const BIN_PREVIEW = 2;

interface GroupState {
  readonly group: number;
  readonly isOpen: boolean;
  readonly locked: ContextToken | null;
}

/** Number of examples shown while the group is collapsed. */
export function previewCount(group: number): number {
  return group === 0 || group === RANDOM_GROUP ? TOP_PREVIEW : BIN_PREVIEW;
}

/** The first few or all fetched examples, in any case down to the one with the locked token. */
export function selectShown(contexts: readonly Context[], { group, isOpen, locked }: GroupState): readonly Context[] {
  if (isOpen) return contexts;
  const lockedRank = locked?.bin === group ? locked.rank : -1;
  return contexts.filter((context, i) => i < previewCount(group) || context.rank <= lockedRank);
}

/** The examples of a bin without duplicates and without those of stronger bins. */
export function selectShownInBin(
  contexts: readonly Context[],
  state: GroupState,
  stronger: readonly Context[] = [],
): Deduplicated {
  const { contexts: unique, numDuplicates } = deduplicate(contexts, stronger);
  return { contexts: selectShown(unique, state), numDuplicates };
}

/** Assign sampled examples to the random group. Duplicates are kept, because their frequency is informative. */
export function asRandomGroup(contexts: readonly Context[]): readonly Context[] {
  return contexts.map((context, rank) => ({ ...context, bin: RANDOM_GROUP, rank }));
}

/** Which contexts of a group are on screen, for the page and for the file that is made of it. */

import type { Context } from "@/api/types";
import type { ContextToken } from "@/components/tokens/concordance";

import { AT_RANDOM } from "./expert-params";
import { type Folded, folded } from "./fold";

export const CONTEXTS_PER_PAGE = 30;

const FIRST_OF_TOP = 7;
const FIRST_OF_INTERVAL = 2;

export interface GroupChoice {
  readonly group: number;
  readonly isOpen: boolean;
  readonly locked: ContextToken | null;
}

/** How many of a group are shown before it is opened. */
export function firstOf(group: number): number {
  return group === 0 || group === AT_RANDOM ? FIRST_OF_TOP : FIRST_OF_INTERVAL;
}

/** Of those that have been fetched: the first few or all, and down to the one that holds the locked token. */
export function shownOf(contexts: readonly Context[], { group, isOpen, locked }: GroupChoice): readonly Context[] {
  if (isOpen) return contexts;
  const wanted = locked?.interval === group ? locked.rank : -1;
  return contexts.filter((context, i) => i < firstOf(group) || context.rank <= wanted);
}

/** Of an interval: those that read the same are folded first. */
export function shownOfInterval(contexts: readonly Context[], choice: GroupChoice): Folded {
  const { contexts: kept, left } = folded(contexts);
  return { contexts: shownOf(kept, choice), left };
}

/** Drawn contexts under the name of their group, numbered as they came. Repeats stay: how often something comes is what
 *  contexts at random are for. */
export function asDrawn(contexts: readonly Context[]): readonly Context[] {
  return contexts.map((context, rank) => ({ ...context, interval: AT_RANDOM, rank }));
}

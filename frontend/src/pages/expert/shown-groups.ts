/** The groups of contexts that an expert's page shows, out of what it has fetched. */

import type { InfiniteData, QueryClient } from "@tanstack/react-query";

import { contextsQuery, randomContextsQuery } from "@/api/queries";
import type { Context, ExpertDetail, Interval, RandomContexts } from "@/api/types";
import type { Values } from "@/url-state";

import type { ShownGroup } from "./expert-file";
import { AT_RANDOM, type EXPERT_PARAMS } from "./expert-params";
import { asDrawn, CONTEXTS_PER_PAGE, shownOf, shownOfInterval } from "./shown-contexts";

type Params = Pick<Values<typeof EXPERT_PARAMS>, "open" | "lock" | "draw">;
type ContextPages = InfiniteData<{ readonly contexts: readonly Context[] }>;

export function shownGroups(
  queries: QueryClient,
  run: string,
  { row, intervals }: ExpertDetail,
  { open, lock, draw }: Params,
): readonly ShownGroup[] {
  const choice = (group: number) => ({ group, isOpen: open.includes(group), locked: lock });
  const ofInterval = ({ interval, low, high, share }: Interval): ShownGroup => {
    const { queryKey } = contextsQuery(run, row.expert, interval, CONTEXTS_PER_PAGE);
    const fetched = queries.getQueryData<ContextPages>(queryKey)?.pages.flatMap((page) => page.contexts) ?? [];
    const { contexts, left } = shownOfInterval(fetched, choice(interval));
    return { name: interval === 0 ? "top" : `interval ${interval}`, low, high, share, contexts, folded: left };
  };
  const { queryKey } = randomContextsQuery(run, row.expert, draw);
  const drawn = queries.getQueryData<RandomContexts>(queryKey)?.contexts ?? [];
  const contexts = shownOf(asDrawn(drawn), choice(AT_RANDOM));
  return [
    ...intervals.filter((interval) => interval.contexts > 0).map(ofInterval),
    { name: "at random", low: null, high: null, share: null, contexts, folded: 0 },
  ];
}

/** The contexts of one interval of coefficients: a few at once, all on request. */

import { useInfiniteQuery } from "@tanstack/react-query";

import { contextsQuery } from "@/api/queries";
import type { Interval } from "@/api/types";
import { Button } from "@/components/button";
import { ErrorState, LoadingState } from "@/components/states";
import { Concordance, type ConcordanceProps } from "@/components/tokens/concordance";
import { formatFixed, formatPercent } from "@/lib/format";

import { GroupCount } from "./group-count";
import { CONTEXTS_PER_PAGE, firstOf, shownOfInterval } from "./shown-contexts";

/** Width in pixels of the bar that stands for all active tokens. */
const FULL_BAR = 160;

interface ContextGroupProps extends Omit<ConcordanceProps, "contexts"> {
  readonly run: string;
  readonly expert: number;
  readonly interval: Interval;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

function Range({ interval }: { readonly interval: Interval }) {
  const isTop = interval.interval === 0;
  return (
    <>
      <h3>{isTop ? "Top" : `Interval ${interval.interval}`}</h3>
      <span className="range">
        {formatFixed(interval.low)} to {formatFixed(interval.high)}
      </span>
      {isTop ? (
        <span className="dim">the {interval.contexts} largest</span>
      ) : (
        <>
          <i className="share" style={{ width: Math.max(2, interval.share * FULL_BAR) }} />
          <span className="dim">
            {formatPercent(interval.share, 1)} %<span className="extra"> of active tokens</span>
          </span>
        </>
      )}
    </>
  );
}

export function ContextGroup(props: ContextGroupProps) {
  const { run, expert, interval, isOpen, onOpen, ...concordance } = props;
  const query = useInfiniteQuery(contextsQuery(run, expert, interval.interval, CONTEXTS_PER_PAGE));
  const all = query.data?.pages.flatMap((page) => page.contexts) ?? [];
  const { locked = null } = concordance;
  const { contexts, left } = shownOfInterval(all, { group: interval.interval, isOpen, locked });
  const rows = Math.min(interval.contexts, firstOf(interval.interval));
  const words = `${contexts.length} of ${interval.contexts}${interval.interval === 0 ? "" : ", at random"}`;
  return (
    <section className="group" aria-label={interval.interval === 0 ? "Largest" : `Interval ${interval.interval}`}>
      <header>
        <Range interval={interval} />
        <span className="grow" />
        {query.data !== undefined && (
          <GroupCount words={words} isAll={contexts.length >= interval.contexts} isOpen={isOpen} onOpen={onOpen} />
        )}
      </header>
      {query.isPending && <LoadingState label="Loading contexts" rows={rows} />}
      {query.error !== null && <ErrorState error={query.error} onRetry={() => void query.refetch()} />}
      {query.data !== undefined && <Concordance contexts={contexts} {...concordance} />}
      {left > 0 && (
        <p className="dim">
          {left === 1 ? "1 more context reads" : `${left} more contexts read`} the same around the token as one above.
        </p>
      )}
      {isOpen && query.hasNextPage && (
        <Button size="small" variant="ghost" onClick={() => void query.fetchNextPage()}>
          More contexts
        </Button>
      )}
    </section>
  );
}

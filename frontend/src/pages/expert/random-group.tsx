/** Contexts at random over all of an expert's active tokens, whatever their interval. */

import { useQuery } from "@tanstack/react-query";

import { randomContextsQuery } from "@/api/queries";
import type { RandomContexts } from "@/api/types";
import { Button } from "@/components/button";
import { ErrorState, LoadingState } from "@/components/states";
import { Concordance, type ConcordanceProps } from "@/components/tokens/concordance";
import { formatCount } from "@/lib/format";

import { AT_RANDOM } from "./expert-params";
import { GroupCount } from "./group-count";
import { asDrawn, firstOf, shownOf } from "./shown-contexts";

interface RandomGroupProps extends Omit<ConcordanceProps, "contexts"> {
  readonly run: string;
  readonly expert: number;
  readonly seed: number;
  readonly onDraw: (seed: number) => void;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

/** How the draw was made, and why it is no longer than it is. */
function HowDrawn({ drawn }: { readonly drawn: RandomContexts }) {
  const count = drawn.contexts.length;
  if (count === drawn.active_tokens) {
    return (
      <p className="dim">
        All its active tokens are kept; these are all of them, in an order drawn with seed {drawn.seed}.
      </p>
    );
  }
  return (
    <p className="dim">
      Drawn with seed {drawn.seed} as if from all {formatCount(drawn.active_tokens)} active tokens: each time an
      interval, by the share of active tokens that it holds, then one of the contexts that the index keeps at random of
      it.
      {drawn.short_of !== null && (
        <>
          {" "}
          The draw ended when interval {drawn.short_of} was wanted and had no other; an index made with a larger{" "}
          <code>--per-interval</code> keeps more.
        </>
      )}
    </p>
  );
}

export function RandomGroup({ seed, onDraw, isOpen, onOpen, ...props }: RandomGroupProps) {
  const { run, expert, ...concordance } = props;
  const { data, error, refetch } = useQuery(randomContextsQuery(run, expert, seed));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading contexts at random" rows={firstOf(AT_RANDOM)} />;
  if (data.contexts.length === 0) return null;
  const { locked = null } = concordance;
  const shown = shownOf(asDrawn(data.contexts), { group: AT_RANDOM, isOpen, locked });
  return (
    <section className="group" aria-label="At random">
      <header>
        <h3>At random</h3>
        <span className="dim">over all active tokens</span>
        <span className="grow" />
        <Button size="small" variant="ghost" icon="dice" onClick={() => onDraw(seed + 1)}>
          Draw again
        </Button>
        <GroupCount
          words={`${shown.length} of ${data.contexts.length}`}
          isAll={shown.length >= data.contexts.length}
          isOpen={isOpen}
          onOpen={onOpen}
        />
      </header>
      <Concordance contexts={shown} {...concordance} />
      <HowDrawn drawn={data} />
    </section>
  );
}

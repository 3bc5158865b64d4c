/** The examples of one activation bin: the first few, all on request. */

import { useInfiniteQuery } from "@tanstack/react-query";

import { examplesQuery } from "@/api/queries";
import type { ActivationBin, Example } from "@/api/types";
import { Concordance, type ConcordanceProps } from "@/components/tokens/concordance";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatFixed, formatShare } from "@/lib/text/format";

import { GroupCount } from "./group-count";
import { EXAMPLES_PER_PAGE, previewCount, selectShownInBin } from "./shown-examples";

/** Width in pixels of a bar for a share of 100 %. */
const FULL_BAR = 160;

interface ExampleGroupProps extends Omit<ConcordanceProps, "examples"> {
  readonly run: string;
  readonly expert: number;
  readonly bin: ActivationBin;
  /** Examples of stronger bins, which are not shown again. */
  readonly stronger: readonly Example[];
  /** Whether each bin has at most one example, so that headings with counts would say little. */
  readonly isSingle?: boolean;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

function Range({ bin, isSingle }: { readonly bin: ActivationBin; readonly isSingle: boolean }) {
  const isTop = bin.bin === 0;
  return (
    <>
      <h3 className={isSingle ? "sr" : ""}>{isTop ? "Top" : `Bin ${bin.bin}`}</h3>
      <span className="range">
        {formatFixed(bin.low)} to {formatFixed(bin.high)}
      </span>
      {isTop ? (
        <span className="dim">
          strongest<span className="extra">, at most one per sequence</span>
        </span>
      ) : (
        <>
          <i className="share" style={{ width: Math.max(2, bin.share * FULL_BAR) }} />
          <span className="dim">
            {formatShare(bin.share, 1)} %
            <span className="extra"> of active tokens{!isSingle && "; random sample of them"}</span>
          </span>
        </>
      )}
    </>
  );
}

function countText({ examples }: ActivationBin, shown: number, isRepeated: boolean): string {
  if (isRepeated) return `${examples} shown above`;
  return `${shown} of ${examples} stored`;
}

/** The fetched top examples. */
export function useTopExamples(run: string, expert: number): readonly Example[] {
  const { data } = useInfiniteQuery(examplesQuery(run, expert, 0, EXAMPLES_PER_PAGE));
  return data?.pages.flatMap((page) => page.examples) ?? [];
}

export function ExampleGroup(props: ExampleGroupProps) {
  const { run, expert, bin, stronger, isSingle = false, isOpen, onOpen, ...concordance } = props;
  const query = useInfiniteQuery(examplesQuery(run, expert, bin.bin, EXAMPLES_PER_PAGE));
  const fetched = query.data?.pages.flatMap((page) => page.examples) ?? [];
  const { locked = null } = concordance;
  const { examples, numDuplicates } = selectShownInBin(fetched, { group: bin.bin, isOpen, locked }, stronger);
  const placeholderRows = Math.min(bin.examples, previewCount(bin.bin));
  const isRepeated = examples.length === 0 && numDuplicates > 0 && !query.hasNextPage;
  if (isRepeated && isSingle) return null;
  return (
    <section
      className={isSingle ? "group single" : "group"}
      aria-label={bin.bin === 0 ? "Top examples" : `Bin ${bin.bin}`}
    >
      <header>
        <Range bin={bin} isSingle={isSingle} />
        <span className="grow" />
        {query.data !== undefined && !isSingle && (
          <GroupCount
            text={countText(bin, examples.length, isRepeated)}
            isAll={isRepeated || examples.length + numDuplicates >= bin.examples}
            isOpen={isOpen}
            onOpen={onOpen}
          />
        )}
      </header>
      {query.isPending && <LoadingState label="Loading examples" rows={placeholderRows} />}
      {query.error !== null && <ErrorState error={query.error} onRetry={() => void query.refetch()} />}
      {query.data !== undefined && !isRepeated && <Concordance examples={examples} {...concordance} />}
      {numDuplicates > 0 && !isRepeated && (
        <p className="dim">
          {numDuplicates === 1 ? "1 more example has" : `${numDuplicates} more examples have`} the same text around the
          peak as one above.
        </p>
      )}
      {isOpen && query.hasNextPage && (
        <Button size="small" variant="ghost" onClick={() => void query.fetchNextPage()}>
          More examples
        </Button>
      )}
    </section>
  );
}

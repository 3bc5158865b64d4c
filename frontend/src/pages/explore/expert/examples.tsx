/** All stored examples of an expert, from the strongest activation bin to the weakest, on one colour scale. */

import {
  keepPreviousData,
  useInfiniteQuery,
  useIsFetching,
  useQueries,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { memo, useCallback } from "react";

import { examplesQuery, topExamplesQuery, randomExamplesQuery } from "@/api/queries";
import type { ActivationBin, Example, ExampleSample, ExpertDetail } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import {
  Concordance,
  type ConcordanceProps,
  type ExampleToken,
  type PromptLinks,
} from "@/components/tokens/concordance";
import { shareAbove } from "@/components/plots/mini-histogram";
import { RampLegend } from "@/components/tokens/ramp-legend";
import { useTray } from "@/components/tray/tray-context";
import { Button, GhostButton } from "@/components/ui/button";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import type { UrlState } from "@/hooks/use-url-state";
import { formatEdits, newEdit } from "@/lib/edits/edits";
import { withEdit } from "@/lib/edits/tray";
import { formatCount, formatFixed, formatPercent, formatShare } from "@/lib/text/format";
import { joinTokens } from "@/lib/text/kwic";

import { type EXPERT_PARAMS, RANDOM_GROUP } from "./expert-params";
import {
  asRandomGroup,
  deduplicate,
  EXAMPLES_PER_PAGE,
  fetchedExamples,
  previewCount,
  selectShown,
  selectShownInBin,
  weakerBins,
  withoutShown,
} from "./shown-examples";

interface GroupProps extends Omit<ConcordanceProps, "examples"> {
  readonly run: string;
  readonly expert: number;
  readonly isOpen: boolean;
  readonly onOpen: (open: boolean) => void;
}

interface GroupCountProps extends Pick<GroupProps, "isOpen" | "onOpen"> {
  /** For example `7 of 20`. */
  readonly text: string;
  readonly isAll: boolean;
}

function GroupCount({ text, isAll, isOpen, onOpen }: GroupCountProps) {
  if (!isOpen && isAll) return <span className="dim">{text}</span>;
  return (
    <GhostButton aria-expanded={isOpen} onClick={() => onOpen(!isOpen)}>
      {isOpen ? "Show fewer" : text}
    </GhostButton>
  );
}

/** Width in pixels of a bar for a share of 100 %. */
const FULL_BAR = 160;

interface ExampleGroupProps extends GroupProps {
  readonly bin: ActivationBin;
  /** Examples of stronger bins, which are not shown again. */
  readonly stronger: readonly Example[];
  /** Number of examples while it is collapsed. */
  readonly preview: number;
}

function Range({ bin }: { readonly bin: ActivationBin }) {
  const isTop = bin.bin === 0;
  return (
    <>
      <h3>{isTop ? "Strongest" : `Bin ${bin.bin}`}</h3>
      <span className="ink2">
        {formatFixed(bin.low)} to {formatFixed(bin.high)}
      </span>
      {isTop ? (
        <span className="dim extra">at most one per sequence</span>
      ) : (
        <>
          <i className="bar-mark share" style={{ width: Math.max(2, bin.share * FULL_BAR) }} />
          <span className="dim">
            {formatShare(bin.share, 1)} %<span className="extra"> of active tokens; random sample of them</span>
          </span>
        </>
      )}
    </>
  );
}

/** The fetched top examples. */
export function useTopExamples(run: string, expert: number): readonly Example[] {
  const { data } = useInfiniteQuery(examplesQuery(run, expert, 0, EXAMPLES_PER_PAGE));
  return data?.pages.flatMap((page) => page.examples) ?? [];
}

function ExampleGroup(props: ExampleGroupProps) {
  const { run, expert, bin, stronger, preview, isOpen, onOpen, ...concordance } = props;
  const query = useInfiniteQuery(examplesQuery(run, expert, bin.bin, EXAMPLES_PER_PAGE));
  const fetched = query.data?.pages.flatMap((page) => page.examples) ?? [];
  const { locked = null } = concordance;
  const { examples, numDuplicates } = selectShownInBin(fetched, { group: bin.bin, isOpen, locked, preview }, stronger);
  const isRepeated = examples.length === 0 && numDuplicates > 0 && !query.hasNextPage;
  return (
    <section className="group" aria-label={bin.bin === 0 ? "Top examples" : `Bin ${bin.bin}`}>
      <header className="row wrap">
        <Range bin={bin} />
        <span className="grow" />
        {query.data !== undefined && (
          <GroupCount
            text={isRepeated ? `${bin.examples} shown above` : `${examples.length} of ${bin.examples} stored`}
            isAll={isRepeated || examples.length + numDuplicates >= bin.examples}
            isOpen={isOpen}
            onOpen={onOpen}
          />
        )}
      </header>
      {query.isPending && <LoadingState label="Loading examples" rows={Math.min(bin.examples, preview)} />}
      {query.error !== null && <ErrorState error={query.error} onRetry={() => void query.refetch()} />}
      {query.data !== undefined && !isRepeated && <Concordance examples={examples} {...concordance} />}
      {numDuplicates > 0 && isOpen && !isRepeated && (
        <p className="dim">
          {numDuplicates === 1 ? "1 more example has" : `${numDuplicates} more examples have`} the same text around the
          peak as one above.
        </p>
      )}
      {isOpen && query.hasNextPage && (
        <GhostButton onClick={() => void query.fetchNextPage()}>More examples</GhostButton>
      )}
    </section>
  );
}

/** Links that use an example as a prompt in Routing, or in Steering with the expert in the tray. */
function usePromptLinks(expert: number): (example: Example) => PromptLinks {
  const links = usePageLinks();
  const tray = useTray();
  // The tray's edits are kept, including the expert's own if there is one.
  const edits = formatEdits(tray.has(expert) ? tray.edits : withEdit(tray.edits, newEdit(expert)));
  return useCallback(
    (example) => {
      const prompt = joinTokens(example);
      return { routing: links.page("routing", { prompt }), steering: links.page("steering", { prompt, edits }) };
    },
    [links, edits],
  );
}

/** A smaller sample repeats the bins above and says nothing about all activations. */
const MIN_SAMPLE = 5;

interface RandomGroupProps extends GroupProps {
  readonly seed: number;
  readonly onResample: (seed: number) => void;
}

/** How the sample was drawn, and why it may be short. */
function describeDraw({ seed, active_tokens: active, exhausted_bin: exhausted }: ExampleSample, drawn: number): string {
  if (drawn === active) return `All of its activations, in random order; seed ${seed}.`;
  return (
    `Seed ${seed}: each draw picks a bin by its share of all ${formatCount(active)} activations, then one of the examples stored for it.` +
    (exhausted === null ? "" : ` Bin ${exhausted} had no more: index with a larger --examples-per-bin.`)
  );
}

/** A random sample of the expert's activations, regardless of their bin. */
function RandomGroup({ seed, onResample, isOpen, onOpen, ...props }: RandomGroupProps) {
  const { run, expert, ...concordance } = props;
  const sampleQuery = randomExamplesQuery(run, expert, seed);
  const { data, error, refetch } = useQuery({ ...sampleQuery, placeholderData: keepPreviousData });
  const top = useTopExamples(run, expert);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading random sample" rows={previewCount(RANDOM_GROUP)} />;
  if (data.sample === null || data.examples.length === 0) return null;
  const { locked = null } = concordance;
  const unseen = withoutShown(asRandomGroup(data.examples), top);
  const numInTop = data.examples.length - unseen.length;
  const shown = selectShown(unseen, { group: RANDOM_GROUP, isOpen, locked, preview: previewCount(RANDOM_GROUP) });
  const isTooSmall = data.examples.length < Math.min(MIN_SAMPLE, data.sample.active_tokens);
  if (unseen.length === 0) return null;
  if (isTooSmall && seed === 0 && locked?.bin !== RANDOM_GROUP) return null;
  return (
    <section className="group" aria-label="Random sample">
      <header className="row wrap">
        <h3>Random sample</h3>
        <span className="dim extra">of all activations</span>
        <span className="grow" />
        <GhostButton icon="dice" onClick={() => onResample(seed + 1)}>
          Resample
        </GhostButton>
        <GroupCount
          text={`${shown.length} of ${data.examples.length}`}
          isAll={shown.length >= unseen.length}
          isOpen={isOpen}
          onOpen={onOpen}
        />
      </header>
      <Concordance examples={shown} {...concordance} />
      <p className="dim">
        {describeDraw(data.sample, data.examples.length)}
        {numInTop > 0 && ` ${numInTop} of the sample stand among the top examples above.`}
      </p>
    </section>
  );
}

export interface ExamplesProps extends UrlState<typeof EXPERT_PARAMS> {
  readonly run: string;
  readonly detail: ExpertDetail;
  readonly onHover: (activation: number | null) => void;
}

const isSameToken = (a: ExampleToken | null, b: ExampleToken) =>
  a?.bin === b.bin && a.rank === b.rank && a.position === b.position;

function LayoutControls({ detail, params, setParams }: Omit<ExamplesProps, "onHover" | "run">) {
  return (
    <div className="row wrap examples-head">
      <h2>
        <Term id="top_example">Fires on</Term>
      </h2>
      <SegmentedControl
        label="Which examples"
        value={params.all ? "all" : "mixed"}
        onChange={(which) => setParams({ all: which === "all" })}
        segments={segmentsOf({ mixed: "Mixed", all: "All strengths" })}
      />
      <SegmentedControl
        label="Layout of examples"
        value={params.view}
        onChange={(view) => setParams({ view })}
        segments={segmentsOf({ aligned: "Aligned", snippet: "Snippet", full: "Full" })}
      />
      <Button
        size="small"
        variant={params.breaks ? "chosen" : "ghost"}
        aria-pressed={params.breaks}
        onClick={() => setParams(({ breaks }) => ({ breaks: !breaks }))}
      >
        Line breaks
      </Button>
      <span className="grow" />
      <RampLegend kind="sequential" low="Activation 0" high={formatFixed(detail.row.max_activation)} />
    </div>
  );
}

/** Props shared by all groups of the expert's examples. */
function useGroups({ run, detail, params, setParams, onHover }: ExamplesProps) {
  const { lock, open } = params;
  const { expert, max_activation: largest } = detail.row;
  const onLock = useCallback(
    (token: ExampleToken) => setParams({ lock: isSameToken(lock, token) ? null : token }),
    [lock, setParams],
  );
  const promptLinks = usePromptLinks(expert);
  const isGroupOpen = (group: number) => ({
    isOpen: open.includes(group),
    onOpen: (isOpen: boolean) => {
      const others = open.filter((number) => number !== group);
      setParams({ open: isOpen ? [...others, group].sort((a, b) => a - b) : others });
    },
  });
  const { view: mode, breaks: showBreaks } = params;
  const shared = { run, expert, largest, mode, showBreaks, onHover, locked: lock, onLock, promptLinks };
  return { shared, isGroupOpen };
}

const hasExamples = (bin: ActivationBin) => bin.examples > 0;

function ExampleGroups({ bins, ...props }: ExamplesProps & { readonly bins: readonly ActivationBin[] }) {
  const { shared, isGroupOpen } = useGroups(props);
  const { run, expert } = shared;
  const queries = useQueryClient();
  // Rendered again when examples of another bin arrive.
  useIsFetching({ queryKey: ["run", run, "examples", expert] });
  const strongerThan = ({ bin }: ActivationBin) => {
    const stronger = props.detail.bins.map((other) => other.bin).filter((other) => other < bin);
    return fetchedExamples(queries, run, expert, stronger);
  };
  return bins.map((bin) => (
    <ExampleGroup
      key={`${expert}-${bin.bin}`}
      bin={bin}
      stronger={strongerThan(bin)}
      preview={previewCount(bin.bin, props.params.all)}
      {...isGroupOpen(bin.bin)}
      {...shared}
    />
  ));
}

/** One random example of each weaker range of activations: of a few of them, or of all. */
function WeakerExamples(props: ExamplesProps) {
  const { run, expert, ...shared } = useGroups(props).shared;
  const { row } = props.detail;
  const bins = weakerBins(props.detail.bins, props.params.all);
  const results = useQueries({ queries: bins.map(({ bin }) => topExamplesQuery(run, expert, 1, bin)) });
  const top = useTopExamples(run, expert);
  if (bins.length === 0)
    return (
      row.active_tokens > top.length && (
        <p className="dim">
          The index stores only the strongest examples, which need not be typical. To store weaker ones, index with{" "}
          <code>--examples-per-bin</code>.
        </p>
      )
    );
  const fetched = results.flatMap(({ data }) => data?.examples ?? []);
  const { examples } = deduplicate(fetched, top);
  const strong = shareAbove({ counts: row.histogram, high: row.histogram_high }, row.max_activation / 2);
  return (
    <section className="group" aria-label="Weaker activations">
      <header className="row wrap">
        <h3>Weaker</h3>
        <span className="ink2">
          {formatPercent(strong, 0)} % of its activations are <Term id="above_half">above half of the largest</Term>
        </span>
        <span className="dim extra">one random example per range</span>
      </header>
      {results.some(({ isPending }) => isPending) ? (
        <LoadingState label="Loading examples" rows={bins.length} />
      ) : (
        <Concordance examples={examples} {...shared} />
      )}
    </section>
  );
}

/** The layout controls, the top examples, and weaker ones: a few by default, else all that are stored. */
export const Examples = memo(function Shown(props: ExamplesProps) {
  const { detail, params, setParams } = props;
  useShortcut("release", () => setParams({ lock: null }), params.lock !== null);
  return (
    <>
      <LayoutControls {...{ detail, params, setParams }} />
      <ExampleGroups {...props} bins={detail.bins.filter(hasExamples).slice(0, 1)} />
      {params.all ? <AllExamples {...props} /> : <WeakerExamples {...props} />}
    </>
  );
});

/** The weaker activation bins, then a random sample of all activations. */
function AllExamples(props: ExamplesProps) {
  const { shared, isGroupOpen } = useGroups(props);
  const { detail, params, setParams } = props;
  const { lock, seed } = params;
  const weaker = detail.bins.filter(hasExamples).slice(1);
  return (
    <>
      {weaker.some((bin) => bin.examples > 1) ? (
        <ExampleGroups {...props} bins={weaker} />
      ) : (
        <WeakerExamples {...props} />
      )}
      <RandomGroup
        key={shared.expert}
        seed={seed}
        onResample={(next) => setParams({ seed: next, ...(lock?.bin === RANDOM_GROUP && { lock: null }) })}
        {...isGroupOpen(RANDOM_GROUP)}
        {...shared}
      />
    </>
  );
}

/** Experts of all layers that match words, best match first, each with the reason. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Fragment, useMemo } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http";
import { expertsQuery } from "@/api/queries";
import type { ExpertRow, RunSummary, SearchHit } from "@/api/types";
import { matchedLabel, MatchedText, nameInLayer } from "@/components/layout/search/matched-text";
import { groupByLabel, type HitGroup, noMatchText, useRelatedHits } from "@/components/layout/search/search-results";
import { AddToList } from "@/components/lists/add-to-list";
import { PromptBox, usePromptDraft } from "@/components/prompt/prompt-box";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { Described, Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PaneHead } from "@/components/ui/pane-head";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useExpertRowsOf } from "@/hooks/use-experts";
import type { UrlState } from "@/hooks/use-url-state";
import { formatCount, formatPlural, formatShare } from "@/lib/text/format";

import { FoundTable, useParts } from "./found-table";
import type { SEARCH_PARAMS } from "./passage-search";
import { Starts } from "./starts";

/** Characters before a match in a column. */
const ROOM = 10;

/** Where the text was found. */
function Reason({ hit, text }: { readonly hit: SearchHit; readonly text: string }) {
  if (hit.matched === "id") return <>number {hit.expert}</>;
  if (hit.matched === "label") return `(${matchedLabel(hit)})`;
  if (hit.example !== null) return <MatchedText example={hit.example} query={text} room={ROOM} />;
  return hit.token !== null && <TokenChip text={hit.token} />;
}

/** The others with the label of a hit. */
function SameLabel({ same }: { readonly same: readonly SearchHit[] }) {
  return (
    <span className="dim">
      Same label:{" "}
      {same.map((hit, i) => (
        <Fragment key={`${hit.run}/${hit.expert}`}>
          {i > 0 && ", "}
          <Link className="link" to={pageLinks(hit.run).expert(hit.expert)}>
            {nameInLayer(hit)}
          </Link>
          {hit.matching_examples > 0 && ` (${hit.matching_examples} of ${hit.top_examples})`}
        </Fragment>
      ))}
    </span>
  );
}

/** Table of the experts that match words, with the reason of each match. */
function WordHits({ text, hits }: { readonly text: string; readonly hits: readonly SearchHit[] }) {
  const [groups, more] = useParts(useMemo(() => groupByLabel(hits), [hits]));
  const runs = [...new Set(groups.map(({ hit }) => hit.run))];
  const rows = useExpertRowsOf(
    runs.map((run) => ({ run, experts: groups.flatMap(({ hit }) => (hit.run === run ? [hit.expert] : [])) })),
  );
  const rowOf = ({ hit }: HitGroup) => rows[runs.indexOf(hit.run)]?.get(hit.expert);
  const density = (row: ExpertRow | undefined) => (row === undefined ? "" : formatShare(row.density));
  return (
    <>
      <FoundTable
        label="Table of experts"
        rows={groups}
        found={(one) => ({ ...one.hit, topTokens: rowOf(one)?.top_tokens })}
        lead={{ key: "lead", name: "Layer", isNumber: true, cell: ({ hit }) => hit.layer }}
        below={({ same }) => (same.length === 0 ? null : <SameLabel same={same} />)}
        columns={[
          {
            ...{ key: "match", name: "Matching top examples", isSorted: true },
            cell: ({ hit }) => (
              <>
                {hit.matching_examples > 0 && (
                  <>
                    <b>
                      {hit.matching_examples} of {hit.top_examples}
                    </b>{" "}
                    <span className="narrow-only">top examples </span>{" "}
                  </>
                )}
                <Reason hit={hit} text={text} />
              </>
            ),
          },
          {
            key: "share",
            name: (
              <Described description="Share of the expert’s active tokens that are the matching token or related word.">
                Share, %
              </Described>
            ),
            isNumber: true,
            from: "tablet",
            cell: ({ hit }) => hit.token_share !== null && formatShare(hit.token_share, 1),
          },
          {
            key: "density",
            name: <Term id="density">Density, %</Term>,
            isNumber: true,
            from: "laptop",
            cell: (one) => density(rowOf(one)),
          },
        ]}
      />
      {more}
    </>
  );
}

const DEBOUNCE_MS = 300;
/** Related words that are named at first. */
const MAX_WORDS = 10;

interface ActionsProps {
  readonly run: RunSummary;
  readonly text: string;
  readonly experts: readonly number[];
}

/** What can be done with the experts of the current run. */
function CurrentActions({ run, text, experts }: ActionsProps) {
  const links = usePageLinks();
  const { data } = useInfiniteQuery(expertsQuery(run.name, { sort: "expert", order: "asc", search: text }, 1));
  const total = data?.pages[0]?.matching ?? 0;
  if (experts.length === 0) return null;
  return (
    <>
      {total > experts.length && (
        <Link className="link" to={links.page("experts", { search: text })}>
          See all {formatCount(total)} of layer {run.layer}
        </Link>
      )}
      <AddToList
        run={run.name}
        experts={experts}
        label={`Add ${formatCount(experts.length)} of layer ${run.layer} to list`}
      />
    </>
  );
}

interface OrderProps {
  readonly words: readonly string[] | undefined;
  readonly failure: unknown;
}

/** How the experts are sorted, and the related words that count. */
function SortOrder({ words, failure }: OrderProps) {
  if (failure !== null) return <>{messageOf(failure)}</>;
  if (words === undefined) return <>Computing related words with the language model…</>;
  const isFew = words.length <= MAX_WORDS;
  return (
    <details>
      <summary>
        Sorted by how many of an expert’s 8 strongest examples fire on a searched or{" "}
        {words.length === 0
          ? "related word"
          : `related word: ${words.slice(0, MAX_WORDS).join(", ")}${isFew ? "" : ", …"}`}
      </summary>
      <p>
        Of equal counts, experts with a clear label come first, then those whose words the language model relates most
        closely to the text. Before all of them come the number of an expert and labels that name the text.
        {!isFew && ` All related words: ${words.join(", ")}.`}
      </p>
    </details>
  );
}

interface LayerFilterProps extends UrlState<typeof SEARCH_PARAMS> {
  readonly layers: readonly RunSummary[];
  readonly hits: readonly SearchHit[];
}

/** Limits the experts to one layer. */
function LayerFilter({ layers, hits, params: { layer }, setParams }: LayerFilterProps) {
  const segment = (value: number | null, count: number) => ({
    value: String(value),
    label: (
      <>
        {value === null ? "All" : <span className="sr-narrow">Layer </span>}
        {value} <span className="dim">{formatCount(count)}</span>
      </>
    ),
  });
  return (
    <SegmentedControl
      label="Layer"
      value={String(layer)}
      onChange={(value) => setParams({ layer: value === "null" ? null : Number(value) }, "push")}
      segments={[
        segment(null, hits.length),
        ...layers
          .map((each) => segment(each.layer, hits.filter((one) => one.run === each.name).length))
          .toSorted((a, b) => Number(a.value) - Number(b.value)),
      ]}
    />
  );
}

function Results({ run, params, setParams }: WordSearchProps) {
  const text = params.text.trim();
  const { hits: all, query, related, layers } = useRelatedHits(text);
  const links = usePageLinks();
  if (query.error !== null) return <ErrorState error={query.error} onRetry={() => void query.refetch()} />;
  if (query.data === undefined) return <LoadingState label="Searching" rows={10} />;
  const isWaiting = related.data === undefined && related.error === null;
  const hits = all.filter(({ layer }) => params.layer === null || layer === params.layer);
  const ofRun = hits.flatMap((hit) => (hit.run === run.name ? [hit.expert] : []));
  return (
    <>
      <div className="ink2 search-order" role="status">
        <SortOrder words={related.data?.words} failure={related.error} />
      </div>
      <div role="region" aria-label="Matching experts" aria-busy={isWaiting}>
        <PaneHead
          title={isWaiting && hits.length === 0 ? "Experts" : formatPlural(hits.length, "expert")}
          note={layers.length === 1 ? `in ${run.name}` : undefined}
          wrap
        >
          {layers.length > 1 && <LayerFilter layers={layers} hits={all} params={params} setParams={setParams} />}
        </PaneHead>
        {hits.length === 0 && !isWaiting && (
          <p className="dim">
            {noMatchText(text)} A token matches if it starts with the text.{" "}
            <Link className="link" to={links.page("search", { kind: "passage", text })}>
              Run it through the model
            </Link>{" "}
            to find the experts that fire on it.
          </p>
        )}
        {hits.length > 0 && <WordHits text={text} hits={hits} />}
        {isWaiting && <LoadingState label="Computing related words" rows={4} />}
        <div className="row wrap search-actions">
          <CurrentActions run={run} text={text} experts={ofRun} />
        </div>
      </div>
    </>
  );
}

interface WordSearchProps extends UrlState<typeof SEARCH_PARAMS> {
  readonly run: RunSummary;
}

export function WordSearch(props: WordSearchProps) {
  const {
    run,
    params: { text },
    setParams,
  } = props;
  const onText = (words: string) => setParams({ text: words });
  const draft = usePromptDraft(text, onText, DEBOUNCE_MS);
  return (
    <div className="stack search-page">
      <section className="prompt-row">
        <PromptBox label="Words" placeholder="Words, “days of the week”, or a number" draft={draft} onEnter="submit" />
      </section>
      {text.trim() === "" ? (
        <>
          <p className="ink2">
            The number of an expert, words, or a description. All layers are searched: labels, the tokens on which each
            expert fires most often, words that the language model relates to the text, and top examples.
          </p>
          <Starts run={run.name} onText={onText} />
        </>
      ) : (
        <Results {...props} />
      )}
    </div>
  );
}

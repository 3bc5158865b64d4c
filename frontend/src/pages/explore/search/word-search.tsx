/** Experts of all layers that match words, best match first, each with the reason. */

import { useInfiniteQuery, useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http";
import { expertsQuery, relatedQuery, searchQuery } from "@/api/queries";
import type { ExpertRow, RunSummary, SearchHit } from "@/api/types";
import { matchedLabel, MatchedText } from "@/components/layout/search/matched-text";
import { firstHitPerExpert, noMatchText } from "@/components/layout/search/search-results";
import { AddToList } from "@/components/lists/add-to-list";
import { PromptBox, usePromptDraft } from "@/components/prompt/prompt-box";
import { useCurrentRun } from "@/components/runs/current-run";
import { pickLayerRuns, usePageLinks } from "@/components/runs/page-links";
import { Described, Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PaneHead } from "@/components/ui/pane-head";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useDebouncedValue } from "@/hooks/use-values";
import { useExpertRowsOf } from "@/hooks/use-experts";
import type { UrlState } from "@/hooks/use-url-state";
import { formatCount, formatPlural, formatProbability, formatShare } from "@/lib/text/format";

import { FoundTable, useParts } from "./found-table";
import type { SEARCH_PARAMS } from "./passage-search";
import { Starts } from "./starts";

export interface LayerHits {
  readonly run: string;
  readonly layer: number;
  readonly hits: readonly SearchHit[];
}

export interface RankedHit extends Omit<LayerHits, "hits"> {
  readonly hit: SearchHit;
}

/** Whether the typed words are the expert's number or in the label that a user gave it. */
const isNamed = ({ matched, label, relation }: SearchHit) => matched === "label" && label !== null && relation === null;
const rank = (hit: SearchHit) => (hit.matched === "id" ? 0 : isNamed(hit) ? 1 : 2);

/**
 * Numbers and user labels first, then the most matching examples, then the searched word itself, then the closest
 * words, else the layer's own order.
 * An example is shown once, although experts of several layers fire in it.
 */
export function mergeHits(layers: readonly LayerHits[]): readonly RankedHit[] {
  const seen = new Set<string>();
  const isNew = ({ hit: { matched, example } }: RankedHit) => {
    const text = String(example?.token_ids);
    return matched !== "example" || example === null || (!seen.has(text) && seen.add(text));
  };
  return layers
    .flatMap(({ hits, ...layer }) => firstHitPerExpert(hits).map((hit) => ({ ...layer, hit })))
    .toSorted(
      ({ hit: a }, { hit: b }) =>
        rank(a) - rank(b) ||
        b.matching_examples - a.matching_examples ||
        Number(b.matched === "token") - Number(a.matched === "token") ||
        b.closeness - a.closeness,
    )
    .filter(isNew);
}

/** Characters before a match in a column. */
const ROOM = 10;

/** Where the text was found. */
function Reason({ hit, text }: { readonly hit: SearchHit; readonly text: string }) {
  if (hit.matched === "id") return <>number {hit.expert}</>;
  if (hit.matched === "label") return `(${matchedLabel(hit)})`;
  if (hit.example !== null) return <MatchedText example={hit.example} query={text} room={ROOM} />;
  return hit.token !== null && <TokenChip text={hit.token} />;
}

/** Table of the experts that match words, with the reason of each match. */
function WordHits({ text, hits: all }: { readonly text: string; readonly hits: readonly RankedHit[] }) {
  const [hits, more] = useParts(all);
  const runs = [...new Set(hits.map(({ run }) => run))];
  const rows = useExpertRowsOf(
    runs.map((run) => ({ run, experts: hits.filter((one) => one.run === run).map(({ hit }) => hit.expert) })),
  );
  const rowOf = ({ run, hit }: RankedHit) => rows[runs.indexOf(run)]?.get(hit.expert);
  const density = (row: ExpertRow | undefined) => (row === undefined ? "" : formatShare(row.density));
  return (
    <>
      <FoundTable
        label="Table of experts"
        rows={hits}
        found={(one) => ({ ...one.hit, run: one.run, topTokens: rowOf(one)?.top_tokens })}
        lead={{ key: "lead", name: "Layer", isNumber: true, cell: ({ layer }) => layer }}
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
            cell: ({ hit }) => hit.token_share !== null && formatProbability(hit.token_share),
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
/** Maximum of the server. */
const MAX_HITS = 100;
/** Milliseconds without a change before the model computes related words. */
const RELATED_AFTER_MS = 600;
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
        Of equal counts, experts that fire on the searched word come first, then those whose words the language model
        relates most closely to the text. Before all of them come the number of an expert and labels that you gave.
        {!isFew && ` All related words: ${words.join(", ")}.`}
      </p>
    </details>
  );
}

/** The current run, then one run per other layer of its language model. */
function useLayerRuns(run: RunSummary): readonly RunSummary[] {
  const { runs } = useCurrentRun();
  return useMemo(() => {
    const others = runs.filter(
      ({ layer, language_model_name: model, indexed_tokens: tokens }) =>
        layer !== run.layer && model === run.language_model_name && tokens !== null,
    );
    const names = pickLayerRuns(run, others);
    return [run, ...names.flatMap((name) => others.filter((other) => other.name === name))];
  }, [run, runs]);
}

interface LayerFilterProps extends UrlState<typeof SEARCH_PARAMS> {
  readonly layers: readonly RunSummary[];
  readonly hits: readonly RankedHit[];
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
  const layers = useLayerRuns(run);
  const names = layers.map(({ name }) => name);
  const isSettled = useDebouncedValue(text, RELATED_AFTER_MS) === text;
  const related = useQuery(relatedQuery(names, isSettled ? text : "", MAX_HITS));
  const direct = useQueries({ queries: names.map((name) => searchQuery(name, text, MAX_HITS)) });
  const links = usePageLinks();
  const failed = direct.find(({ error }) => error !== null);
  if (failed !== undefined) return <ErrorState error={failed.error} onRetry={() => void failed.refetch()} />;
  if (direct.some(({ data }) => data === undefined)) return <LoadingState label="Searching" rows={10} />;
  const isWaiting = related.data === undefined && related.error === null;
  const all = mergeHits(
    layers.map(({ name, layer }, i) => ({
      ...{ run: name, layer },
      hits: related.data?.find((one) => one.run === name)?.hits ?? direct[i]?.data ?? [],
    })),
  );
  const hits = all.filter(({ layer }) => params.layer === null || layer === params.layer);
  const ofRun = hits.filter((one) => one.run === run.name).map(({ hit }) => hit.expert);
  return (
    <>
      <div className="ink2 search-order" role="status">
        <SortOrder words={related.data?.find((one) => one.run === run.name)?.words} failure={related.error} />
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

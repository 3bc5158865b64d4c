/** Experts of all layers that match words, best match first, each with the reason. */

import { Link } from "react-router";

import { messageOf } from "@/api/http";
import type { RunSummary, SearchHit } from "@/api/types";
import { matchedLabel, MatchedText } from "@/components/layout/search/matched-text";
import { MAX_HITS, noMatchText, useLayerHits } from "@/components/layout/search/search-results";
import { AddToList } from "@/components/lists/add-to-list";
import { PromptBox, usePromptDraft } from "@/components/prompt/prompt-box";
import { usePageLinks } from "@/components/runs/page-links";
import { Described } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PaneHead } from "@/components/ui/pane-head";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPlural, formatShare } from "@/lib/text/format";

import { densityColumn, FoundTable, LAYER, useParts } from "./found-table";
import type { SearchProps } from "./passage-search";
import { Starts } from "./starts";

/** Characters before a match in a column. */
const ROOM = 10;

/** Where the text was found. */
function Reason({ hit, text }: { readonly hit: SearchHit; readonly text: string }) {
  if (hit.matched === "id") return <>number {hit.expert}</>;
  if (hit.matched === "label") return hit.word === null ? `“${text}” in the ${matchedLabel(hit)}` : matchedLabel(hit);
  if (hit.example !== null) return <MatchedText example={hit.example} query={text} room={ROOM} />;
  return hit.token !== null && <TokenChip text={hit.token} />;
}

/** Table of the experts that match words, with the reason of each match. */
function WordHits({ text, hits }: { readonly text: string; readonly hits: readonly SearchHit[] }) {
  const [rows, more] = useParts(hits);
  return (
    <>
      <FoundTable
        label="Table of experts"
        rows={rows}
        found={(hit) => ({ ...hit, topTokens: hit.top_tokens })}
        lead={{ ...LAYER, cell: ({ layer }) => layer }}
        columns={[
          {
            key: "match",
            name: (
              <Described description="How closely the words on which its strongest examples fire are related to the text: mean from 0 to 1, and how many of the examples fire on such a word.">
                Closeness, matching top examples
              </Described>
            ),
            cell: (hit) => (
              <>
                {hit.top_examples > 0 && (
                  <>
                    <b>{formatFixed(hit.closeness, 2)}</b>, {hit.matching_examples} of {hit.top_examples}{" "}
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
            cell: ({ token_share: share }) => (share === null ? "–" : formatShare(share, 1)),
          },
          densityColumn((hit: SearchHit) => hit.density),
        ]}
      />
      {more}
    </>
  );
}

const DEBOUNCE_MS = 300;
/** Related words that are named; the others are in the tooltip. */
const MAX_WORDS = 6;

/** How the experts are sorted, and the related words that count. */
function describeOrder(words: readonly string[] | undefined, failure: unknown): string {
  if (failure !== null) return messageOf(failure);
  if (words === undefined) return "Computing related words with the language model…";
  const end = words.length > MAX_WORDS ? ", …" : "";
  const named = words.length === 0 ? "" : ` (${words.slice(0, MAX_WORDS).join(", ")}${end})`;
  return `Labels that are not weak and name the text first, then by how close the words are on which the top examples fire${named}.`;
}

interface LayerFilterProps extends Omit<SearchProps, "run"> {
  readonly layers: readonly RunSummary[];
  /** Null until they are all known. */
  readonly hits: readonly SearchHit[] | null;
}

/** Limits the experts to one layer. */
function LayerFilter({ layers, hits, params: { layer }, setParams }: LayerFilterProps) {
  const segment = (value: number | null) => ({
    value: String(value),
    label: (
      <>
        {value === null ? "All" : `L${value}`}
        {hits !== null && (
          <span className="dim">
            · {formatCount(hits.filter((hit) => value === null || hit.layer === value).length)}
          </span>
        )}
      </>
    ),
  });
  return (
    <SegmentedControl
      label="Layer"
      value={String(layer)}
      onChange={(value) => setParams({ layer: value === "null" ? null : Number(value) }, "push")}
      segments={[
        segment(null),
        ...layers.map((run) => segment(run.layer)).toSorted((a, b) => Number(a.value) - Number(b.value)),
      ]}
    />
  );
}

function Results({ run, params, setParams }: SearchProps) {
  const text = params.text.trim();
  const { hits: all, query, related, layers, isWaiting } = useLayerHits(text, true);
  const links = usePageLinks();
  if (query.error !== null) return <ErrorState error={query.error} onRetry={() => void query.refetch()} />;
  if (query.data === undefined) return <LoadingState label="Searching" rows={10} />;
  const hits = all.filter(({ layer }) => params.layer === null || layer === params.layer);
  const isFull = layers.some(({ name }) => all.filter((hit) => hit.run === name).length === MAX_HITS);
  const ofRun = hits.flatMap((hit) => (hit.run === run.name ? [hit.expert] : []));
  return (
    <>
      <p className="ink2" role="status" title={related.data?.words.join(", ")}>
        {describeOrder(related.data?.words, related.error)}
      </p>
      <div role="region" aria-label="Matching experts" aria-busy={isWaiting}>
        <PaneHead
          title={formatPlural(hits.length, "expert") + (isWaiting ? " so far" : "")}
          note={isFull ? `the best ${MAX_HITS} of a layer at most` : undefined}
          wrap
        >
          {layers.length > 1 && all.length > 0 && (
            <LayerFilter layers={layers} hits={isWaiting ? null : all} params={params} setParams={setParams} />
          )}
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
          {ofRun.length > 0 && !isWaiting && (
            <AddToList
              run={run.name}
              experts={ofRun}
              label={`Add ${formatCount(ofRun.length)} of layer ${run.layer} to list`}
            />
          )}
          {all.length > 0 && (
            <Link className="link" to={links.page("experts", { search: text })}>
              Filter the table of layer {run.layer} by “{text}”
            </Link>
          )}
        </div>
      </div>
    </>
  );
}

export function WordSearch(props: SearchProps) {
  const { run, params, setParams } = props;
  const { text } = params;
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

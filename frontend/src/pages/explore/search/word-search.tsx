/** Experts of all layers that match words, best match first, each with the reason. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http/errors";
import { expertsQuery, relatedQuery, searchQuery } from "@/api/queries";
import type { ExpertRow, RunSummary, SearchHit } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { firstHitPerExpert, noMatchText } from "@/components/layout/search/first-hits";
import { MatchedText } from "@/components/layout/search/matched-text";
import { AddToList } from "@/components/lists/add-to-list";
import { PromptBox } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useDebouncedValue } from "@/hooks/use-debounced-value";
import { useExpertRows } from "@/hooks/use-expert-rows";
import { formatCount, formatFoundAgain, formatPlural, formatProbability, formatShare } from "@/lib/text/format";

/** What somebody may look for in any language model: meanings, a place, a programming language. */
const EXAMPLES = ["days of the week", "family members", "China", "Python", "money", "numbers"];

interface ReasonProps {
  readonly hit: SearchHit;
  readonly text: string;
}

function Reason({ hit, text }: ReasonProps) {
  if (hit.matched === "id") return <>number {hit.expert}</>;
  if (hit.matched === "label") return hit.label === null ? "automatic label" : "user label";
  if (hit.example !== null) return <MatchedText example={hit.example} query={text} />;
  if (hit.token === null || hit.token_share === null) return null;
  return (
    <>
      {hit.matched === "related" ? "related word: " : "top token: "}
      <TokenChip text={hit.token} /> {formatProbability(hit.token_share)} %
    </>
  );
}

interface HitRowProps extends ReasonProps {
  readonly run: string;
  readonly row: ExpertRow | undefined;
  readonly withRecurrence: boolean;
}

function HitRow({ run, hit, row, text, withRecurrence }: HitRowProps) {
  const links = pageLinks(run);
  return (
    <tr>
      <td className="c-plus">
        <PlusButton expert={hit.expert} run={run} />
      </td>
      <td className="num mono">{hit.expert}</td>
      <td className="s-label">
        <Link to={links.expert(hit.expert)}>
          <ExpertLabel label={hit.label} automatic={hit.automatic} expert={hit.expert} />
        </Link>
      </td>
      <td className="s-reason">
        <Reason hit={hit} text={text} />
      </td>
      <td className="num">{row === undefined ? "" : formatShare(row.density)}</td>
      {withRecurrence && <td className="num">{row === undefined ? "" : formatFoundAgain(row)}</td>}
      <td className="s-tokens">
        {row?.top_tokens.slice(0, 4).map((token) => (
          <TokenChip key={token.id} text={token.text} />
        ))}
      </td>
    </tr>
  );
}

interface WordHitsProps {
  readonly run: string;
  readonly text: string;
  readonly hits: readonly SearchHit[];
}

/** Table of the experts that match words, with the reason of each match. */
function WordHits({ run, text, hits }: WordHitsProps) {
  const rows = useExpertRows(
    run,
    hits.map(({ expert }) => expert),
  );
  const withRecurrence = [...rows.values()].some(({ recurrence }) => recurrence !== null);
  return (
    <ScrollBox className="passage-hits" label={`Table of ${run}`}>
      <table className="grid plain word-hits">
        <thead>
          <tr>
            <th className="c-plus" scope="col">
              <span className="sr">Tray</span>
            </th>
            <th scope="col" className="num s-id">
              Id
            </th>
            <th scope="col">Label</th>
            <th scope="col">Match</th>
            <th scope="col" className="num s-density">
              <Term id="density">Density, %</Term>
            </th>
            {withRecurrence && (
              <th scope="col" className="num s-density">
                <Term id="recurrence">Found again</Term>
              </th>
            )}
            <th scope="col">
              <Term id="top_tokens">Top tokens</Term>
            </th>
          </tr>
        </thead>
        <tbody>
          {hits.map((hit) => (
            <HitRow
              key={hit.expert}
              run={run}
              hit={hit}
              row={rows.get(hit.expert)}
              text={text}
              withRecurrence={withRecurrence}
            />
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

const DEBOUNCE_MS = 300;
/** Maximum of the server. */
const MAX_HITS = 100;
/** Milliseconds without a change before the model computes related words. */
const RELATED_AFTER_MS = 600;
/** Related words that are named. */
const MAX_WORDS = 10;

interface SummaryProps {
  readonly run: RunSummary;
  readonly text: string;
  readonly hits: readonly SearchHit[];
}

/** What can be done with the experts of the current run. */
function CurrentActions({ run, text, hits }: SummaryProps) {
  const experts = hits.map((hit) => hit.expert);
  const links = usePageLinks();
  const { data } = useInfiniteQuery(expertsQuery(run.name, { sort: "expert", order: "asc", search: text }, 1));
  const total = data?.pages[0]?.matching ?? 0;
  return (
    <>
      {total > experts.length && (
        <Link className="link" to={links.page("experts", { search: text })}>
          See all {formatCount(total)} in the table
        </Link>
      )}
      <AddToList run={run.name} experts={experts} label={`Add ${formatCount(experts.length)} to list`} />
    </>
  );
}

/** Experts listed at first. */
const PREVIEW = 10;
const PREVIEW_OF_OTHERS = 5;

/**
 * Text matches with a reason of their own come before related words, and text around an example comes last. While the
 * related words are computed, only what will stay in its place.
 */
function merged(hits: readonly SearchHit[], related: readonly SearchHit[] | undefined): readonly SearchHit[] {
  const isExample = ({ matched }: SearchHit) => matched === "example";
  const direct = hits.filter((hit) => !isExample(hit));
  return firstHitPerExpert(related === undefined ? direct : [...direct, ...related, ...hits.filter(isExample)]);
}

interface LayerHitsProps {
  readonly run: RunSummary;
  readonly isCurrent: boolean;
  readonly text: string;
  /** Undefined while they are computed. */
  readonly related: readonly SearchHit[] | undefined;
}

/** The experts of one layer. Other layers than the current one are left out if they have none. */
function LayerHits({ run, isCurrent, text, related }: LayerHitsProps) {
  const { data, error, refetch } = useQuery(searchQuery(run.name, text, MAX_HITS));
  const [isAll, setAll] = useState(false);
  const links = usePageLinks();
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return isCurrent && <LoadingState label="Searching" rows={10} />;
  const hits = merged(data, related);
  if (!isCurrent && (related === undefined || hits.length === 0)) return null;
  const preview = isCurrent ? PREVIEW : PREVIEW_OF_OTHERS;
  return (
    <section className="layer-hits" aria-label={`Layer ${run.layer}, ${run.name}`}>
      <div className="pane-h wrap">
        <h2>Layer {run.layer}</h2>
        <span className="note">
          <span className="mono">{run.name}</span>
          {hits.length > 0 && `, ${formatPlural(hits.length, "expert")}`}
        </span>
        <span className="grow" />
        {isCurrent && hits.length > 0 && <CurrentActions run={run} text={text} hits={hits} />}
      </div>
      {hits.length === 0 && related !== undefined && (
        <p className="dim">
          {noMatchText(text)} A token matches if it starts with the text.{" "}
          <Link className="link" to={links.page("search", { kind: "passage", text })}>
            Run it through the model
          </Link>{" "}
          to find the experts that fire on it.
        </p>
      )}
      {hits.length > 0 && <WordHits run={run.name} text={text} hits={isAll ? hits : hits.slice(0, preview)} />}
      {related === undefined && <LoadingState label="Computing related words" rows={4} />}
      {hits.length > preview && (
        <Button size="small" variant="ghost" aria-expanded={isAll} onClick={() => setAll(!isAll)}>
          {isAll ? `Show ${preview}` : `Show all ${formatCount(hits.length)}`}
        </Button>
      )}
    </section>
  );
}

interface RelatedWordsProps {
  readonly words: readonly string[] | undefined;
  readonly failure: unknown;
}

function RelatedWords({ words, failure }: RelatedWordsProps) {
  return (
    <p className="caveat" role="status">
      {failure !== null ? (
        messageOf(failure)
      ) : words === undefined ? (
        "Computing related words with the language model…"
      ) : (
        <>
          Matching labels first, then top tokens, then words that the language model relates to the text
          {words.length > 0 && (
            <>
              {" "}
              (<i>{words.slice(0, MAX_WORDS).join(", ")}</i>)
            </>
          )}
          , then text around an example, where an expert may fire on other words.
        </>
      )}
    </p>
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

function Results({ run, text }: Omit<WordSearchProps, "onText">) {
  const layers = useLayerRuns(run);
  const names = layers.map(({ name }) => name);
  const isSettled = useDebouncedValue(text, RELATED_AFTER_MS) === text;
  const related = useQuery(relatedQuery(names, isSettled ? text : ""));
  const relatedOf = (name: string) => related.data?.find((one) => one.run === name);
  return (
    <>
      <RelatedWords words={relatedOf(run.name)?.words} failure={related.error} />
      <div role="region" aria-label="Matching experts">
        {layers.map((layer) => (
          <LayerHits
            key={`${layer.name} ${text}`}
            run={layer}
            isCurrent={layer.name === run.name}
            text={text}
            related={related.error === null ? relatedOf(layer.name)?.hits : []}
          />
        ))}
      </div>
    </>
  );
}

interface WordSearchProps {
  readonly run: RunSummary;
  readonly text: string;
  readonly onText: (text: string) => void;
}

export function WordSearch({ run, text, onText }: WordSearchProps) {
  const draft = usePromptDraft(text, onText, DEBOUNCE_MS);
  return (
    <div className="search-page">
      <section className="prompt-row">
        <PromptBox
          label="Words"
          placeholder="Words, “days of the week”, or a number"
          value={draft.text}
          onChange={draft.setText}
          onSubmit={draft.commit}
          onEnter="submit"
        />
      </section>
      {text.trim() === "" ? (
        <EmptyState title="Find experts by words">
          Enter the number of an expert, words, or a description such as “days of the week”. All layers are searched:
          labels first, then the tokens on which each expert fires most often, words that the language model relates to
          the text, and top examples.
          <p className="example-words">
            For example:{" "}
            {EXAMPLES.map((words) => (
              <Button key={words} size="small" onClick={() => onText(words)}>
                {words}
              </Button>
            ))}
          </p>
        </EmptyState>
      ) : (
        <Results run={run} text={text.trim()} />
      )}
    </div>
  );
}

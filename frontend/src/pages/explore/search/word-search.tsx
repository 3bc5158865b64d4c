/** Experts with the words in their label, a top token or an example, best match first, each with the reason. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { expertsQuery, searchQuery } from "@/api/queries";
import type { RunSummary, SearchHit } from "@/api/types";
import { firstHitPerExpert, noMatchText } from "@/components/layout/search/first-hits";
import { AddToList } from "@/components/lists/add-to-list";
import { PromptBox } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { usePageLinks } from "@/components/runs/page-links";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatPlural } from "@/lib/text/format";

import { ExampleWords } from "./example-words";
import { WordHits } from "./word-hits";

const DEBOUNCE_MS = 300;
/** Maximum of the server. */
const MAX_HITS = 100;

interface SummaryProps {
  readonly run: RunSummary;
  readonly text: string;
  readonly hits: readonly SearchHit[];
}

/** A word near an example says little about the expert. */
function ExampleCaveat({ hits }: { readonly hits: readonly SearchHit[] }) {
  const count = hits.filter((hit) => hit.matched === "example").length;
  if (count === 0) return null;
  return (
    <p className="caveat">
      {formatCount(count)} of the listed match only by the text around an example, where they may fire on other words.
    </p>
  );
}

function Summary({ run, text, hits }: SummaryProps) {
  const experts = hits.map((hit) => hit.expert);
  const links = usePageLinks();
  const filters = { sort: "expert", order: "asc", search: text } as const;
  const { data } = useInfiniteQuery(expertsQuery(run.name, filters, 1));
  // Examples may match loosely, which the count leaves out.
  const total = Math.max(data?.pages[0]?.matching ?? 0, experts.length);
  const isCut = total > experts.length;
  const count = experts.length < MAX_HITS || data !== undefined ? formatPlural(total, "expert") : "Counting experts";
  return (
    <div className="search-bar">
      <span className="count" role="status">
        <b>{count}</b>: matching labels first, then top tokens, then examples
        {isCut && `; the first ${formatCount(experts.length)} are listed`}
      </span>
      <span className="see-all" aria-busy={data === undefined}>
        {isCut && (
          <Link className="link" to={links.page("experts", { search: text })}>
            See all {formatCount(total)} in the table
          </Link>
        )}
      </span>
      <AddToList run={run.name} experts={experts} label={`Add ${formatCount(experts.length)} to list`} />
    </div>
  );
}

interface WordSearchProps {
  readonly run: RunSummary;
  readonly text: string;
  readonly onText: (text: string) => void;
}

function Results({ run, text }: Omit<WordSearchProps, "onText">) {
  const { data, error, refetch } = useQuery(searchQuery(run.name, text, MAX_HITS));
  const links = usePageLinks();
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Searching" rows={10} />;
  const hits = firstHitPerExpert(data.hits);
  if (hits.length === 0) {
    return (
      <EmptyState title="No matches">
        {noMatchText(text)} A token matches if it starts with the text.{" "}
        <Link to={links.page("search", { kind: "passage", text })}>Run it through the model</Link> to find the experts
        that fire on it.
      </EmptyState>
    );
  }
  return (
    <>
      <Summary run={run} text={text} hits={hits} />
      <ExampleCaveat hits={hits} />
      <WordHits run={run.name} text={text} hits={hits} />
    </>
  );
}

export function WordSearch({ run, text, onText }: WordSearchProps) {
  const draft = usePromptDraft(text, onText, DEBOUNCE_MS);
  return (
    <div className="search-page">
      <section className="prompt-row">
        <PromptBox
          label="Words"
          placeholder="Label, token, example or number"
          value={draft.text}
          onChange={draft.setText}
          onSubmit={draft.commit}
          onEnter="submit"
        />
      </section>
      {text.trim() === "" ? (
        <EmptyState title="Find experts by words">
          Enter the number of an expert, or words. Words are looked up in labels first, then in the tokens on which each
          expert fires most often, then in its top examples.
          <ExampleWords run={run.name} onChoose={onText} />
        </EmptyState>
      ) : (
        <Results run={run} text={text.trim()} />
      )}
    </div>
  );
}

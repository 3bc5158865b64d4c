/** Runs a passage through the language model and ranks the experts that fire on it or on one of its tokens. */

import { useQuery } from "@tanstack/react-query";
import { passageQuery } from "@/api/queries";
import type { PassageResult, RunSummary } from "@/api/types";
import { AddToList } from "@/components/lists/add-to-list";
import { ExamplePrompts } from "@/components/prompt/example-prompts";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { Term } from "@/components/terms/term";
import { Button } from "@/components/ui/button";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import type { SetParams } from "@/hooks/use-url-state";
import { saveFile } from "@/lib/browser/save-file";
import { formatCount } from "@/lib/text/format";
import { sentencePrompt } from "@/lib/text/prompts";

import { passageCsv, passageJson } from "./passage-export";
import { PassageHits } from "./passage-hits";
import { PassageTokens } from "./passage-tokens";
import { SEARCH_PARAMS, type SearchParams } from "./search-params";

const DEBOUNCE_MS = 600;
/** Experts above this density are not specific to the passage. */
const COMMON_DENSITY = 0.01;

interface AnswerProps {
  readonly run: RunSummary;
  readonly result: PassageResult;
  readonly params: SearchParams;
}

/** `152 experts fire on the passage, 120 of them with density ≤ 1 %; the first 100 are listed`. */
function countText({ hits, matching, firing }: PassageResult, { position, max_density }: SearchParams): string {
  const place = position === null ? "passage" : "token";
  const fires = firing === 1 ? `expert fires on the ${place}` : `experts fire on the ${place}`;
  const rare = max_density === null ? "" : `, ${formatCount(matching)} of them with density ≤ ${100 * max_density} %`;
  const listed = hits.length < matching ? `; the first ${formatCount(hits.length)} are listed` : "";
  return `${formatCount(firing)} ${fires}${rare}${listed}`;
}

/** Number of matching experts, and actions on them. */
function ResultSummary({ run, result, params }: AnswerProps) {
  const name = `${run.name}-fires-on`;
  return (
    <>
      <span className="count" role="status">
        {countText(result, params)}
      </span>
      <span className="grow" />
      <AddToList
        run={run.name}
        experts={result.hits.map((hit) => hit.expert)}
        label={`Add ${formatCount(result.hits.length)} to list`}
      />
      <Button icon="download" onClick={() => saveFile(`${name}.json`, passageJson(result, params), "application/json")}>
        JSON
      </Button>
      <Button icon="download" onClick={() => saveFile(`${name}.csv`, passageCsv(result), "text/csv")}>
        CSV
      </Button>
    </>
  );
}

interface AnswerBarProps extends Omit<AnswerProps, "result"> {
  /** undefined while the result still belongs to the previous query. */
  readonly result: PassageResult | undefined;
  readonly setParams: SetParams<typeof SEARCH_PARAMS>;
}

function ResultBar({ run, result, params, setParams }: AnswerBarProps) {
  const onlyRare = params.max_density !== null;
  return (
    <div className="search-bar">
      <SegmentedControl
        label="Rank by"
        value={params.by}
        onChange={(by) => setParams({ by }, "push")}
        segments={[
          { value: "lift", label: "Lift over density" },
          { value: "mass", label: "Summed activation" },
        ]}
      />
      <Button
        variant={onlyRare ? "chosen" : "plain"}
        aria-pressed={onlyRare}
        onClick={() => setParams({ max_density: onlyRare ? null : COMMON_DENSITY }, "push")}
      >
        Density ≤ 1 % only
      </Button>
      {result === undefined ? (
        <span className="count dim" role="status">
          Searching…
        </span>
      ) : (
        <ResultSummary run={run} result={result} params={params} />
      )}
    </div>
  );
}

/** What the ranking does not show. */
function Caveat() {
  return (
    <p className="caveat">
      Low and high are the ends of the lift’s 95 % interval. The tokens of one passage depend on each other, so the
      intervals are too narrow. They are not corrected for comparing many experts: the order is a shortlist, not a test.
    </p>
  );
}

interface PassageSearchProps {
  readonly run: RunSummary;
  readonly params: SearchParams;
  readonly setParams: SetParams<typeof SEARCH_PARAMS>;
}

export function PassageSearch({ run, params, setParams }: PassageSearchProps) {
  const search = (text: string) => setParams({ text, position: null });
  const draft = usePromptDraft(params.text, search, DEBOUNCE_MS);
  const { text, position, by, max_density } = params;
  const { data, error, isFetching, isPlaceholderData, refetch } = useQuery(
    passageQuery(run.name, { text, position, by, max_density }),
  );
  return (
    <div className="search-page" aria-busy={isFetching}>
      <section className="prompt-row">
        <PromptBox
          label="Passage"
          placeholder="Paste a passage to find the experts that fire on it"
          value={draft.text}
          onChange={draft.setText}
          onSubmit={draft.commit}
        />
        <div className="prompt-actions">
          <Button variant="primary" disabled={draft.text === ""} onClick={draft.commit}>
            Run through the model<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      {text === "" && (
        <div className="search-empty">
          <EmptyState title="Find the experts that fire on a passage">
            Paste a passage above. <Term id="lift">Lift</Term> ranks experts by how much more often they fire on it than
            elsewhere, <Term id="summed_activation">summed activation</Term> by how strongly. Click a token to restrict
            the ranking to it. Longer passages give narrower intervals.
          </EmptyState>
          {run.indexed_tokens !== null && <ExamplePrompts run={run.name} toPrompt={sentencePrompt} onChoose={search} />}
        </div>
      )}
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {text !== "" && data === undefined && error === null && (
        <LoadingState label="Routing; the language model is loaded on first use" rows={10} />
      )}
      {text !== "" && data !== undefined && (
        <>
          <PassageTokens
            tokens={data.tokens}
            position={position}
            onChoose={(chosen) => setParams({ position: chosen }, "push")}
          />
          <ResultBar run={run} result={isPlaceholderData ? undefined : data} params={params} setParams={setParams} />
          {data.hits.length === 0 ? (
            <EmptyState title="No matching experts" />
          ) : (
            <>
              <Caveat />
              <PassageHits result={data} by={by} position={isPlaceholderData ? null : position} />
            </>
          )}
        </>
      )}
    </div>
  );
}

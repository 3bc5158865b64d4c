/** Which experts fire on a text: paste a passage, look at all of it or at one token. */

import "@/components/prompt/prompt.css";
import "./search/search.css";

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { passageQuery } from "@/api/queries";
import type { PassageResult, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { usePageLinks } from "@/components/links";
import { AddToList } from "@/components/lists/add-to-list";
import { Openings } from "@/components/prompt/openings";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { Segmented } from "@/components/segmented";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { formatCount } from "@/lib/format";
import { sentence } from "@/lib/prompts";
import { saveFile } from "@/lib/save-file";
import { type SetParams, useUrlState } from "@/url-state";

import { passageCsv, passageJson } from "./search/passage-export";
import { PassageHits } from "./search/passage-hits";
import { PassageTokens } from "./search/passage-tokens";
import { SEARCH_PARAMS, type SearchParams } from "./search/search-params";

const PAUSE_MS = 600;
/** Experts that fire on more of all text say little about this one. */
const COMMON_USAGE = 0.01;

interface AnswerProps {
  readonly run: RunSummary;
  readonly result: PassageResult;
  readonly params: SearchParams;
}

/** How much was found, and what can be done with it. */
function Answer({ run, result, params }: AnswerProps) {
  const name = `${run.name}-fires-on`;
  return (
    <>
      <span className="count" role="status">
        <b>{formatCount(result.hits.length)}</b> of {formatCount(result.matching)} shown; {formatCount(result.firing)}{" "}
        fire {params.position === null ? "on the passage" : "on the token"}
      </span>
      <span className="grow" />
      <AddToList run={run.name} experts={result.hits.map((hit) => hit.expert)} label="All to a list" />
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
  /** Undefined while what is shown is still the answer to the question before. */
  readonly result: PassageResult | undefined;
  readonly setParams: SetParams<typeof SEARCH_PARAMS>;
}

function AnswerBar({ run, result, params, setParams }: AnswerBarProps) {
  const onlyRare = params.max_usage !== null;
  return (
    <div className="search-bar">
      <Segmented
        label="Ranked by"
        value={params.by}
        onChange={(by) => setParams({ by }, "push")}
        segments={[
          { value: "mass", label: "Mass" },
          { value: "lift", label: "Lift over usage" },
        ]}
      />
      <Button
        variant={onlyRare ? "chosen" : "plain"}
        aria-pressed={onlyRare}
        onClick={() => setParams({ max_usage: onlyRare ? null : COMMON_USAGE }, "push")}
      >
        Usage ≤ 1 % only
      </Button>
      {result === undefined ? (
        <span className="count dim" role="status">
          Looking…
        </span>
      ) : (
        <Answer run={run} result={result} params={params} />
      )}
    </div>
  );
}

function Search({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(SEARCH_PARAMS);
  const links = usePageLinks();
  const take = (text: string) => setParams({ text, position: null });
  const draft = usePromptDraft(params.text, take, PAUSE_MS);
  const { text, position, by, max_usage } = params;
  const { data, error, isFetching, isPlaceholderData, refetch } = useQuery(
    passageQuery(run.name, { text, position, by, max_usage }),
  );
  return (
    <div className="search-page" aria-busy={isFetching}>
      <section className="prompt-row">
        <PromptBox
          label="Passage"
          placeholder="Paste a passage: which experts fire on it?"
          value={draft.text}
          onChange={draft.type}
          onSubmit={draft.commit}
        />
        <div className="prompt-actions">
          <Button variant="primary" disabled={draft.text === ""} onClick={draft.commit}>
            Search<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      {text === "" && (
        <div className="search-empty">
          <EmptyState title="Which experts fire on this text">
            Paste a passage above. Mass ranks by how strongly experts fire on it; lift by how much more often than
            elsewhere. For words in labels and contexts, search in{" "}
            <Link className="link" to={links.page("experts")}>
              the table of experts
            </Link>
            .
          </EmptyState>
          {run.indexed_tokens !== null && <Openings run={run.name} cut={sentence} onChoose={take} />}
        </div>
      )}
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {text !== "" && data === undefined && error === null && (
        <LoadingState label="Routing; the language model is loaded when it is first needed" rows={10} />
      )}
      {text !== "" && data !== undefined && (
        <>
          <PassageTokens
            tokens={data.tokens}
            position={position}
            onChoose={(chosen) => setParams({ position: chosen }, "push")}
          />
          <AnswerBar run={run} result={isPlaceholderData ? undefined : data} params={params} setParams={setParams} />
          {data.hits.length === 0 ? (
            <EmptyState title="No expert fires there within these bounds" />
          ) : (
            <PassageHits result={data} />
          )}
        </>
      )}
    </div>
  );
}

export default function SearchPage() {
  return (
    <>
      <title>Search · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Search" }]} />
      <WithRun>{(run) => <Search key={run.name} run={run} />}</WithRun>
    </>
  );
}

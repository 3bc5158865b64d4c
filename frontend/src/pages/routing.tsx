/** Where a text goes: every token, the experts active on it, and what the layer changes about the next token. */

import "@/components/prompt/prompt.css";
import "./routing.css";
import "./routing/heat-map.css";
import "./routing/token-panel.css";

import { useQuery } from "@tanstack/react-query";

import { routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { FromContext } from "@/components/prompt/from-context";
import { Openings } from "@/components/prompt/openings";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { formatCount } from "@/lib/format";
import { sentence } from "@/lib/prompts";
import { useUrlState } from "@/url-state";

import { ROUTING_PARAMS } from "./routing/routing-params";
import { RoutingView } from "./routing/routing-view";

const PAUSE_MS = 250;

function Length({ response, isFetching }: { readonly response?: RoutingResponse | undefined; isFetching: boolean }) {
  if (response === undefined) return null;
  const starts = response.tokens.filter((token) => token.start).length;
  return (
    <span className="length" aria-live="polite" data-busy={isFetching || undefined}>
      {formatCount(response.tokens.length - starts)} tokens{" "}
      <span className="dim">of {formatCount(response.max_tokens - starts)}</span>
    </span>
  );
}

function Nothing({ run, onChoose }: { readonly run: RunSummary; readonly onChoose: (prompt: string) => void }) {
  return (
    <div className="routing-empty">
      <EmptyState title="Type a text to see where it goes">
        Every token becomes a column, every expert that is active on one of them a row. It is computed while you type.
      </EmptyState>
      {run.indexed_tokens !== null && <Openings run={run.name} cut={sentence} onChoose={onChoose} />}
    </div>
  );
}

function Routing({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(ROUTING_PARAMS);
  const { prompt } = params;
  const draft = usePromptDraft(prompt, (text) => setParams({ prompt: text }), PAUSE_MS);
  const { data, error, isFetching, refetch } = useQuery(routingQuery(run.name, prompt));
  const choose = (text: string) => setParams({ prompt: text, lock: null }, "push");
  const response = prompt === "" || data?.run !== run.name ? undefined : data;
  const submit = () => (draft.text === prompt ? void refetch() : draft.commit());
  return (
    <>
      <section className="prompt-row">
        <PromptBox
          label="Prompt"
          placeholder="Type or paste a text"
          value={draft.text}
          onChange={draft.type}
          onSubmit={submit}
        />
        <div className="prompt-actions">
          <Length response={response} isFetching={isFetching} />
          {run.indexed_tokens !== null && (
            <FromContext run={run.name} onChoose={(context) => choose(sentence(context))} />
          )}
          <Button variant="primary" disabled={draft.text === ""} onClick={submit}>
            Route<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {prompt === "" && <Nothing run={run} onChoose={choose} />}
      {prompt !== "" && response === undefined && error === null && (
        <div className="routing-empty">
          <LoadingState label="Routing; the language model is loaded when it is first needed" rows={14} />
        </div>
      )}
      {response !== undefined && <RoutingView run={run} response={response} params={params} setParams={setParams} />}
    </>
  );
}

export default function RoutingPage() {
  return (
    <>
      <title>Routing · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Routing" }]} />
      <WithRun>{(run) => <Routing key={run.name} run={run} />}</WithRun>
    </>
  );
}

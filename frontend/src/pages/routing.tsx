/** Where a text goes: every token, the experts active on it, and what the layer changes about the next token. */

import "@/components/prompt/prompt.css";
import "./routing.css";
import "./routing/heat-map.css";
import "./routing/token-panel.css";

import { useQuery } from "@tanstack/react-query";

import { jointRoutingQuery, routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { chosenK } from "@/components/k-choice";
import { FromContext } from "@/components/prompt/from-context";
import { Openings } from "@/components/prompt/openings";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { formatCount } from "@/lib/format";
import { sentence } from "@/lib/prompts";
import { type SetParams, useUrlState, type Values } from "@/url-state";

import { DifferenceView } from "./routing/difference-view";
import { useLayers } from "./routing/other-layers";
import { ROUTING_PARAMS } from "./routing/routing-params";
import { RoutingView } from "./routing/routing-view";

const PAUSE_MS = 250;

function Length({ response, isFetching }: { readonly response?: RoutingResponse | undefined; isFetching: boolean }) {
  if (response === undefined) return null;
  const starts = response.tokens.filter((token) => token.start).length;
  return (
    <span className="length" aria-live="polite" data-busy={isFetching || undefined}>
      {formatCount(response.tokens.length - starts)} {response.tokens.length - starts === 1 ? "token" : "tokens"}{" "}
      <span className="dim">of {formatCount(response.max_tokens - starts)}</span>
    </span>
  );
}

function Nothing({ run, onChoose }: { readonly run: RunSummary; readonly onChoose: (prompt: string) => void }) {
  return (
    <div className="prompted-empty">
      <EmptyState title="Type a text to see where it goes">
        Every token becomes a column, every expert that is active on one of them a row. It is computed while you type.
      </EmptyState>
      {run.indexed_tokens !== null && <Openings run={run.name} cut={sentence} onChoose={onChoose} />}
    </div>
  );
}

type Params = Values<typeof ROUTING_PARAMS>;

/** The routing of the prompt, alone or together with other layers. */
function useRoutings(run: RunSummary, { prompt, layers, k }: Params) {
  const chosen = useLayers(run, layers);
  const names = [run.name, ...chosen.map((layer) => layer.name)];
  const asked = { text: prompt, k: chosenK(run, k) };
  const alone = useQuery(routingQuery(run.name, chosen.length > 0 ? "" : asked));
  const together = useQuery(jointRoutingQuery(names, asked));
  const { error, isFetching, refetch } = chosen.length > 0 ? together : alone;
  const routings = chosen.length > 0 ? (together.data?.routings ?? []) : alone.data === undefined ? [] : [alone.data];
  const response = prompt === "" ? undefined : routings.find((routing) => routing.run === run.name);
  return { response, others: routings.filter((routing) => routing.run !== run.name), error, isFetching, refetch };
}

interface SecondProps {
  readonly against: string;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

function SecondPrompt({ against, setParams }: SecondProps) {
  const draft = usePromptDraft(against, (text) => setParams({ against: text }), PAUSE_MS);
  return (
    <section className="prompt-row second">
      <PromptBox
        label="Second prompt"
        placeholder="Type the text to compare with"
        value={draft.text}
        onChange={draft.type}
        onSubmit={draft.commit}
      />
    </section>
  );
}

interface ComparedProps {
  readonly run: RunSummary;
  readonly first: RoutingResponse;
  readonly params: Params;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

function Compared({ run, first, params, setParams }: ComparedProps) {
  const { data, error, refetch } = useQuery(
    routingQuery(run.name, { text: params.against ?? "", k: chosenK(run, params.k) }),
  );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Routing the second text" rows={10} />;
  return <DifferenceView first={first} second={data} params={params} setParams={setParams} />;
}

function Routing({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(ROUTING_PARAMS);
  const { prompt } = params;
  const draft = usePromptDraft(prompt, (text) => setParams({ prompt: text }), PAUSE_MS);
  const { response, others, error, isFetching, refetch } = useRoutings(run, params);
  const choose = (text: string) => setParams({ prompt: text, lock: null }, "push");
  const submit = () => (draft.text === prompt ? void refetch() : draft.commit());
  const comparing = params.against !== null;
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
          <Button
            variant={comparing ? "chosen" : "plain"}
            aria-pressed={comparing}
            onClick={() => setParams({ against: comparing ? null : "" }, "push")}
          >
            Compare
          </Button>
          {run.indexed_tokens !== null && (
            <FromContext run={run.name} onChoose={(context) => choose(sentence(context))} />
          )}
          <Button variant="primary" disabled={draft.text === ""} onClick={submit}>
            Route<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      {params.against !== null && <SecondPrompt against={params.against} setParams={setParams} />}
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {prompt === "" && <Nothing run={run} onChoose={choose} />}
      {prompt !== "" && response === undefined && error === null && (
        <div className="prompted-empty">
          <LoadingState label="Routing; the language model is loaded when it is first needed" rows={14} />
        </div>
      )}
      {response !== undefined && comparing && params.against !== "" && (
        <Compared run={run} first={response} params={params} setParams={setParams} />
      )}
      {response !== undefined && !(comparing && params.against !== "") && (
        <RoutingView run={run} response={response} others={others} params={params} setParams={setParams} />
      )}
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

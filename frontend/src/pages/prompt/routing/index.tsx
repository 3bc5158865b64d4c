/** Routing: the experts active on each token, and how the layer changes the next-token distribution. */

import "@/components/prompt/prompt.css";
import "./routing.css";
import "./heat-map/heat-map.css";
import "./token/token-panel.css";

import { useQuery } from "@tanstack/react-query";

import { routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { ExamplePrompts } from "@/components/prompt/example-prompts";
import { FromContext } from "@/components/prompt/from-context";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { WithRun } from "@/components/runs/current-run";
import { effectiveK } from "@/components/runs/k-slider";
import { Button } from "@/components/ui/button";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { type SetParams, useUrlState, type Values } from "@/hooks/use-url-state";
import { formatCount } from "@/lib/text/format";
import { sentencePrompt } from "@/lib/text/prompts";

import { DifferenceView } from "./difference/difference-view";
import { useLayers } from "./layer-buttons";
import { ROUTING_PARAMS } from "./routing-params";
import { RoutingView } from "./routing-view";
import { TraceView } from "./trace/trace-view";

const DEBOUNCE_MS = 250;

function Length({ response, isFetching }: { readonly response?: RoutingResponse | undefined; isFetching: boolean }) {
  if (response === undefined) return null;
  const startTokens = response.tokens.filter((token) => token.start).length;
  return (
    <span className="length" aria-live="polite" data-busy={isFetching || undefined}>
      {formatCount(response.tokens.length - startTokens)}{" "}
      {response.tokens.length - startTokens === 1 ? "token" : "tokens"}{" "}
      <span className="dim">of {formatCount(response.max_tokens - startTokens)}</span>
    </span>
  );
}

function EmptyPrompt({ run, onChoose }: { readonly run: RunSummary; readonly onChoose: (prompt: string) => void }) {
  return (
    <div className="prompted-empty">
      <EmptyState title="Type a text to see its routing">
        Each token becomes a column and each active expert a row, updated as you type.
      </EmptyState>
      {run.indexed_tokens !== null && <ExamplePrompts run={run.name} toPrompt={sentencePrompt} onChoose={onChoose} />}
    </div>
  );
}

type Params = Values<typeof ROUTING_PARAMS>;

/** Routing of the prompt through this run, jointly with other layers if any are selected. */
function useRoutings(run: RunSummary, { prompt, layers, k }: Params) {
  const names = useLayers(run, layers).map((layer) => layer.name);
  const { data, error, isFetching, refetch } = useQuery(
    routingQuery(run.name, { text: prompt, k: effectiveK(run, k) }, names),
  );
  // While another run's routing is fetched, the previous one stays.
  const response = prompt === "" || data?.run !== run.name ? undefined : data;
  return { response, others: response?.others ?? [], error, isFetching, refetch };
}

interface SecondProps {
  readonly against: string;
  readonly setParams: SetParams<typeof ROUTING_PARAMS>;
}

function SecondPrompt({ against, setParams }: SecondProps) {
  const draft = usePromptDraft(against, (text) => setParams({ against: text }), DEBOUNCE_MS);
  return (
    <section className="prompt-row second">
      <PromptBox
        label="Second prompt"
        placeholder="Type a text to compare with"
        value={draft.text}
        onChange={draft.setText}
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
    routingQuery(run.name, { text: params.against ?? "", k: effectiveK(run, params.k) }),
  );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Routing the second text" rows={10} />;
  return <DifferenceView run={run} first={first} second={data} params={params} setParams={setParams} />;
}

function Routing({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(ROUTING_PARAMS);
  const { prompt } = params;
  const draft = usePromptDraft(prompt, (text) => setParams({ prompt: text }), DEBOUNCE_MS);
  const { response, others, error, isFetching, refetch } = useRoutings(run, params);
  const choose = (text: string) => setParams({ prompt: text, lock: null }, "push");
  const submit = () => (draft.text === prompt ? void refetch() : draft.commit());
  const isComparing = params.against !== null;
  return (
    <>
      <section className="prompt-row">
        <PromptBox
          label="Prompt"
          placeholder="Type or paste a text"
          value={draft.text}
          onChange={draft.setText}
          onSubmit={submit}
        />
        <div className="prompt-actions">
          <Length response={response} isFetching={isFetching} />
          <Button
            variant={isComparing ? "chosen" : "plain"}
            aria-pressed={isComparing}
            onClick={() => setParams({ against: isComparing ? null : "" }, "push")}
          >
            Compare
          </Button>
          {run.indexed_tokens !== null && (
            <FromContext run={run.name} onChoose={(context) => choose(sentencePrompt(context))} />
          )}
          <Button variant="primary" disabled={draft.text === ""} onClick={submit}>
            Route<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      {params.against !== null && <SecondPrompt against={params.against} setParams={setParams} />}
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {prompt === "" && <EmptyPrompt run={run} onChoose={choose} />}
      {prompt !== "" && response === undefined && error === null && (
        <div className="prompted-empty">
          <LoadingState label="Routing; the language model is loaded on first use" rows={14} />
        </div>
      )}
      {response !== undefined && isComparing && params.against !== "" && (
        <Compared run={run} first={response} params={params} setParams={setParams} />
      )}
      {response !== undefined &&
        !(isComparing && params.against !== "") &&
        (others.length > 0 ? (
          <TraceView run={run} routings={[response, ...others]} params={params} setParams={setParams} />
        ) : (
          <RoutingView run={run} response={response} params={params} setParams={setParams} />
        ))}
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

/** Routing: the experts active on each token, and how the layer changes the next-token distribution. */

import "./routing.css";
import "./heat-map/heat-map.css";
import "./token/token-panel.css";

import { useQuery } from "@tanstack/react-query";
import { Navigate, useLocation, useNavigate } from "react-router";

import { routingQuery } from "@/api/queries";
import type { RoutingResponse, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { ExamplePrompts, Examples } from "@/components/prompt/example-prompts";
import { PromptBox, PromptLoading, usePromptDraft } from "@/components/prompt/prompt-box";
import { PromptRow } from "@/components/prompt/prompt-row";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { effectiveK, KSlider } from "@/components/runs/k-slider";
import { pageLinks } from "@/components/runs/page-links";
import { Button } from "@/components/ui/button";
import { EmptyState, ErrorState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { formatCount, formatPlural } from "@/lib/text/format";
import { sentencePrompt } from "@/lib/text/kwic";
import { Layers, useOtherRuns } from "@/pages/prompt/layers";

import { DifferenceView } from "./difference/difference-view";
import { Filters } from "./foot";
import { ROUTING_PARAMS, type RoutingState } from "./routing-params";
import { RoutingView } from "./routing-view";
import { TraceView } from "./trace/trace-view";

const DEBOUNCE_MS = 250;

interface RunState extends RoutingState {
  readonly run: RunSummary;
}

function Length({ response, isFetching }: { readonly response?: RoutingResponse | undefined; isFetching: boolean }) {
  // Its place is there from the beginning.
  if (response === undefined) return <span className="length">{isFetching ? "…" : "\u200b"}</span>;
  const startTokens = response.tokens.filter((token) => token.start).length;
  return (
    <span className="length" aria-live="polite" data-busy={isFetching || undefined}>
      {formatPlural(response.tokens.length - startTokens, "token")}{" "}
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

/** Offered while a text to compare is missing. */
const EXAMPLE_PAIRS = [
  "She drank a glass of water ↔ She drank a cup of coffee",
  "My sister lives in London ↔ My brother lives in Paris",
  "The meeting is on Monday ↔ The meeting is in December",
];

/** The texts, and examples in the layer with the most experts, whose labels are the most specific. */
function EmptyComparison({ run, params, setParams }: RunState) {
  const navigate = useNavigate();
  const { runs } = useCurrentRun();
  const alike = runs.filter(
    ({ language_model: model, method, indexed_tokens: indexed }) =>
      model === run.language_model && method === run.method && indexed !== null,
  );
  const { name, layer } = alike.reduce((most, other) => (other.num_experts > most.num_experts ? other : most), run);
  return (
    <div className="prompted-empty">
      <EmptyState title="Type two texts to compare their experts">
        <p>The texts are aligned token by token. Each cell shows how much stronger an expert is in the second one.</p>
        {params.prompt !== "" && (
          <Button onClick={() => setParams({ second: params.prompt })}>Copy the first text to edit it</Button>
        )}
      </EmptyState>
      <Examples
        title={`Or start from an example${name === run.name ? "" : `, in layer ${layer}, which has the most experts`}:`}
        prompts={EXAMPLE_PAIRS}
        onChoose={(pair) => {
          const [prompt = "", second = ""] = pair.split(" ↔ ");
          void navigate(pageLinks(name).page("texts", { prompt, second }));
        }}
      />
    </div>
  );
}

function SecondPrompt({ run, params, setParams }: RunState) {
  const text = { text: params.second, k: effectiveK(run, params.k) };
  const { data, isFetching } = useQuery(routingQuery(run.name, text));
  const draft = usePromptDraft(params.second, (text) => setParams({ second: text }), DEBOUNCE_MS);
  return (
    <>
      <div className="second">
        <PromptBox
          label="Second prompt"
          placeholder="Type a text to compare with"
          draft={draft}
          onOpen={params.prompt === "" ? "leave-focus" : "take-focus"}
        />
      </div>
      <Length response={params.second === "" ? undefined : data} isFetching={isFetching} />
    </>
  );
}

function Compared({ first, ...state }: RunState & { readonly first: RoutingResponse }) {
  const { run, params } = state;
  const { data, error, refetch } = useQuery(
    routingQuery(run.name, { text: params.second, k: effectiveK(run, params.k) }),
  );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <PromptLoading run={run} label="Routing the second text" text={params.second} />;
  return <DifferenceView {...state} first={first} second={data} />;
}

type View = "tokens" | "layers" | "texts";

function Routing({ run, view }: { readonly run: RunSummary; readonly view: View }) {
  const [params, setParams] = useUrlState(ROUTING_PARAMS);
  const state = { run, params, setParams };
  const { prompt, second } = params;
  const chosen = useOtherRuns(run, params.layers);
  const draft = usePromptDraft(prompt, (text) => setParams({ prompt: text }), DEBOUNCE_MS);
  // One layer is not routed first, so that the table appears as a whole.
  const isKnown = view !== "layers" || chosen !== undefined;
  const { data, error, isFetching, refetch } = useQuery(
    routingQuery(
      run.name,
      { text: isKnown ? prompt : "", k: effectiveK(run, params.k) },
      view === "layers" ? (chosen ?? []) : [],
    ),
  );
  // While another run's routing is fetched, the previous one stays.
  const response = prompt === "" || data?.run !== run.name ? undefined : data;
  const choose = (text: string) => setParams({ prompt: text, lock: null }, "push");
  const isLoading = response === undefined || !isKnown;
  return (
    <>
      <PromptRow
        run={run}
        draft={draft}
        action={view === "texts" ? "Compare" : "Route"}
        isReady={draft.text !== "" && (view !== "texts" || second !== "")}
        onSubmit={() => (draft.text === prompt ? void refetch() : draft.commit())}
        onExample={(example) => choose(sentencePrompt(example))}
        second={view === "texts" && <SecondPrompt {...state} />}
      >
        <Length response={response} isFetching={isFetching} />
      </PromptRow>
      <Layers
        run={run}
        chosen={view === "layers" ? (chosen ?? []) : null}
        onChoose={(names) => setParams({ layers: names }, "push")}
      >
        {view === "layers" && <Filters params={params} setParams={setParams} />}
        <KSlider run={run} k={params.k} onChange={(k) => setParams({ k })} />
      </Layers>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {view === "texts" && (prompt === "" || second === "") && <EmptyComparison {...state} />}
      {view !== "texts" && prompt === "" && <EmptyPrompt run={run} onChoose={choose} />}
      {prompt !== "" && isLoading && error === null && (
        <PromptLoading run={run} label="Routing" text={view === "layers" ? "" : prompt} hasPanel={view !== "texts"} />
      )}
      {!isLoading && view === "texts" && second !== "" && <Compared {...state} first={response} />}
      {!isLoading && view === "layers" && <TraceView {...state} routings={[response, ...response.others]} />}
      {!isLoading && view === "tokens" && <RoutingView {...state} response={response} />}
    </>
  );
}

const VIEWS: Readonly<Record<string, readonly [View, string]>> = {
  "/routing": ["tokens", "Tokens"],
  "/layers": ["layers", "Layers"],
  "/texts": ["texts", "Compare"],
};

export default function RoutingPage() {
  const { pathname, search } = useLocation();
  const [view, title] = VIEWS[pathname] ?? ["tokens", "Tokens"];
  const query = new URLSearchParams(search);
  // Former addresses of Compare and Layers.
  if (query.has("against")) return <Navigate replace to={`/texts${search.replace("against=", "second=")}`} />;
  if (view === "tokens" && query.has("layers")) return <Navigate replace to={`/layers${search}`} />;
  return (
    <>
      <title>{`${title} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: title }]} />
      <WithRun>{(run) => <Routing key={run.name} run={run} view={view} />}</WithRun>
    </>
  );
}

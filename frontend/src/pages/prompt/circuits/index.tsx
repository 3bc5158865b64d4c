/** Circuits: the experts behind a target, through all layers that have a run. Every number is predicted and measured. */

import { type Query, type QueryKey, useIsFetching, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fragment, useMemo, useState } from "react";

import { circuitCheckQuery, circuitQuery, predictionsQuery, progressQuery, routingQuery } from "@/api/queries";
import type {
  CircuitGraph,
  CircuitNode,
  CircuitRequest,
  CircuitResponse,
  CircuitTarget,
  CircuitVerdict,
  RunSummary,
} from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useShare } from "@/components/layout/share";
import { PromptLoading, usePromptDraft } from "@/components/prompt/prompt-box";
import { PromptRow } from "@/components/prompt/prompt-row";
import { WithRun } from "@/components/runs/current-run";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl, segmentsOf } from "@/components/ui/segmented-control";
import { Remaining } from "@/components/ui/remaining";
import { EmptyState, ErrorState } from "@/components/ui/states";
import { useDebouncedValue } from "@/hooks/use-values";
import { type UrlState, useUrlState } from "@/hooks/use-url-state";
import { formatFixed, formatPercent, formatShare } from "@/lib/text/format";
import { continuationPrompt } from "@/lib/text/kwic";
import { visibleText } from "@/lib/text/token-text";
import { Layers, useOtherRuns } from "@/pages/prompt/layers";

import {
  CIRCUIT_PARAMS,
  defaultTarget,
  kindOf,
  MOST_PROBABLE,
  type Parts,
  SHOWN,
  DRAWN_FROM,
  sizedEdges,
  strongest,
} from "./circuit";
import { Graph } from "./graph";
import { FoundNode, NodePanel } from "./panel";

import "./circuits.css";

interface TargetBarProps {
  readonly graph: CircuitGraph;
  /** The most probable token after the text, if a word of the text is explained instead. */
  readonly next: Pick<CircuitGraph["candidates"][number], "id" | "text"> | null;
  /** Whether no target is chosen. */
  readonly isDefault: boolean;
  /** `at`: the position before the target, null for the last one; by default, it stays. */
  readonly onChange: (target: CircuitTarget, at?: number | null) => void;
}

/** Choice of another token, whose logit is subtracted. */
function Contrast({ graph, token, onChange }: Pick<TargetBarProps, "graph" | "onChange"> & { readonly token: number }) {
  const { target, candidates } = graph;
  return (
    <label>
      Contrast with{" "}
      <select
        value={target.kind === "difference" ? target.other : ""}
        onChange={({ currentTarget: { value } }) =>
          onChange(value === "" ? { kind: "token", token } : { kind: "difference", token, other: Number(value) })
        }
      >
        <option value="">mean of all tokens</option>
        {candidates
          .filter(({ id }) => id !== token)
          .map(({ id, text }) => (
            <option key={id} value={id}>
              {visibleText(text)}
            </option>
          ))}
      </select>
    </label>
  );
}

/** Choice of the target: a likely next token, its difference from another, or a continuation. */
function TargetBar({ graph, next, isDefault, onChange }: TargetBarProps) {
  const { target, candidates } = graph;
  const token = target.kind === "token" || target.kind === "difference" ? (target.token ?? null) : null;
  const likely = candidates.find(({ id }) => id === token);
  const shown = candidates.filter(({ id }, i) => i < SHOWN || id === token);
  return (
    <div className="row wrap target-bar" role="group" aria-label="Target">
      <span className="dim">
        {isDefault && next === null ? `Explain the likeliest ${kindOf(likely, candidates)}:` : "Explain"}
      </span>
      {next !== null && (
        <>
          <b>
            {graph.label}, the last content word of the text
            {likely !== undefined && <span className="num"> {formatShare(likely.probability, 1)} %</span>}
          </b>
          <Button size="small" onClick={() => onChange({ kind: "token", token: next.id }, null)}>
            Explain the next token, <TokenChip text={next.text} />
          </Button>
        </>
      )}
      {shown.map(({ id, text, probability }) => (
        <Button
          key={id}
          size="small"
          variant={id === token ? "chosen" : "plain"}
          aria-pressed={id === token}
          onClick={() => onChange({ kind: "token", token: id })}
        >
          <TokenChip text={text} /> <span className="num">{formatShare(probability, 1)} %</span>
        </Button>
      ))}
      {token !== null && next === null && <Contrast graph={graph} token={token} onChange={onChange} />}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const text = event.currentTarget.querySelector("input")?.value ?? "";
          onChange(text === "" ? MOST_PROBABLE : { kind: "continuation", text });
        }}
      >
        <input
          className="field"
          aria-label="Continuation to explain"
          placeholder="Another text"
          title="With the space before it"
          defaultValue={target.kind === "continuation" ? target.text : ""}
        />
      </form>
      {target.kind === "expert" && (
        <>
          <b>{graph.label}</b>
          <Button size="small" icon="close" onClick={() => onChange(MOST_PROBABLE, null)}>
            Back to the next token
          </Button>
        </>
      )}
    </div>
  );
}

const TASKS = ["circuit", "circuit-check"];
/** Offered while no prompt is typed. */
const EXAMPLE = "The patient was taken to the nearest";

/** How far a task is, and the time that is left. */
function Progress({ of }: { readonly of: QueryKey }) {
  const { data } = useQuery(progressQuery(of));
  if (data === undefined) return null;
  return (
    <span className="num">
      {data.done} of {data.total} steps
      <Remaining done={data.done} total={data.total} every={1} />
    </span>
  );
}

interface FindingProps extends Parts {
  readonly checking: { readonly key: QueryKey; readonly error: Error | null; readonly isFetching: boolean };
}

/** The finding: what the experts do together, and which support and oppose the target most. */
function Finding({ response, check, checking }: FindingProps) {
  const { graph } = response;
  const id = graph.target.kind === "token" ? (graph.target.token ?? graph.candidates[0]?.id) : null;
  const token = graph.candidates.find((one) => one.id === id);
  const name = token === undefined ? `the ${graph.label}` : <TokenChip text={token.text} />;
  return (
    <div className="circuit-finding">
      <div className="circuit-verdict" data-level={check?.verdict.level}>
        <div role="status" aria-busy={checking.isFetching}>
          {check !== null ? (
            <p className="finding">
              <b>{check.verdict.headline}</b>
            </p>
          ) : checking.isFetching ? (
            <>
              All effects are predicted so far. Ablating each of the {graph.nodes.length - 1} shown experts in the model
              … <Progress of={checking.key} />
            </>
          ) : (
            (checking.error?.message ?? "Stopped: all effects are predictions. Trace again to measure them.")
          )}
        </div>
        <p className="circuit-strongest">
          {check === null ? "Predicted" : "Measured"}:{" "}
          {strongest(graph, check).map(({ index, change }, i) => (
            <Fragment key={index}>
              {i > 0 && "; "}
              <FoundNode response={response} index={index} /> {change < 0 ? "supports" : "opposes"}{" "}
              {i === 0 ? name : "it"} most, by {formatFixed(Math.abs(change))}
            </Fragment>
          ))}
          .
        </p>
        {check !== null && <Checks verdict={check.verdict} />}
      </div>
    </div>
  );
}

/** The figures behind the verdict, and its rule. */
const Checks = ({ verdict }: { readonly verdict: CircuitVerdict }) => (
  <details className="circuit-checks">
    <summary>How this is measured</summary>
    <p className="dim">
      <Term id="circuit_verdict">Verdict</Term>: {verdict.sentence}
    </p>
    <dl>
      {verdict.figures.map(([name, value, note]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <b>{value}</b> <span className="dim">{note}</span>
          </dd>
        </div>
      ))}
    </dl>
    <p className="dim">{verdict.limits}</p>
  </details>
);

interface ViewProps extends UrlState<typeof CIRCUIT_PARAMS> {
  readonly response: CircuitResponse;
  readonly request: CircuitRequest;
  readonly next: TargetBarProps["next"];
  /** Whether nothing more is computed, because somebody stopped it. */
  readonly isStopped: boolean;
}

/** How many experts are shown, and what the other ones do. */
const Choices = ({ params, setParams }: UrlState<typeof CIRCUIT_PARAMS>) => (
  <div className="row wrap">
    <label>
      Experts{" "}
      <NumberInput
        label="Experts"
        value={params.nodes}
        digits={0}
        min={1}
        max={100}
        onCommit={(nodes) => setParams({ nodes: Math.round(nodes) })}
      />
    </label>
    <SegmentedControl
      label="MLPs"
      value={params.errors}
      onChange={(errors) => setParams({ errors }, "push")}
      segments={segmentsOf({ kept: "Original model", dropped: "Layers replaced" })}
    />
  </div>
);

/** What the signs mean. */
function Legend({ response: { graph }, check }: Parts) {
  const sized = sizedEdges(graph);
  return (
    <p className="dim">
      Box: what an expert fires on, and its effect on the target (+ supports, − opposes),{" "}
      <Term id="circuit_effect">{check === null ? "predicted" : "measured"}</Term>.{" "}
      <span
        className="arrows"
        title={`Those from ${formatPercent(DRAWN_FROM, 0)} % of the strongest one to the target, or between experts`}
      >
        Arrows: {sized.filter(({ isStrong }) => isStrong).length} of {sized.length}; point at a box for all.
      </span>
    </p>
  );
}

function CircuitView({ response, request, next, isStopped, params, setParams }: ViewProps) {
  const { graph } = response;
  const checkQuery = circuitCheckQuery(request, graph);
  const { data: check = null, error, isFetching } = useQuery({ ...checkQuery, enabled: !isStopped });
  useShare(request.runs[0] ?? "", check && (() => ({ kind: "circuit", request, graph, check })));
  const [hovered, setHovered] = useState<number | null>(null);
  const node = params.node ?? strongest(graph, check)[0]?.index ?? 0;
  const selected = node < graph.nodes.length ? node : 0;
  const described = useDebouncedValue(hovered ?? selected);
  const select = (node: number) => setParams({ node });
  const explain = ({ run, expert, position }: CircuitNode) => {
    if (run === null || expert === null) return;
    setParams({ target: { kind: "expert", run, expert }, at: position, node: null }, "push");
  };
  const parts = { response, check };
  return (
    <>
      <TargetBar
        graph={graph}
        next={next}
        isDefault={params.target === MOST_PROBABLE}
        onChange={(target, at = request.position ?? null) => setParams({ target, at, node: null }, "push")}
      />
      <Finding {...parts} checking={{ key: checkQuery.queryKey, error, isFetching }} />
      <div className="circuit-columns">
        <section className="prompted-main" aria-label="Graph">
          <Legend {...parts} />
          <Graph {...parts} selected={selected} hovered={hovered} onSelect={select} onHover={setHovered} />
        </section>
        <aside className="circuit-panel" aria-label="Circuit details">
          <NodePanel
            {...parts}
            text={request.text ?? ""}
            index={described < graph.nodes.length ? described : 0}
            onSelect={select}
            onExplain={explain}
          />
        </aside>
      </div>
    </>
  );
}

/** The circuit of the target; if none is chosen, of a word with a meaning, by the tokens and the likely next ones. */
function useCircuit(request: CircuitRequest | null, isDefault: boolean, isStopped: boolean) {
  const run = request?.runs[0] ?? "";
  const text = isDefault ? (request?.text ?? "") : "";
  const routed = useQuery(routingQuery(run, text));
  const predicted = useQuery(predictionsQuery(run, text));
  const candidates = predicted.data?.tokens
    .at(-1)
    ?.predictions.map(({ id, text: word, original: probability }) => ({ id, text: word, probability }));
  const isWaiting = isDefault && (routed.data === undefined || routed.isPlaceholderData || candidates === undefined);
  const read = { tokens: routed.data?.tokens ?? [], candidates: candidates ?? [] };
  const word = isDefault && !isWaiting ? defaultTarget(read) : null;
  const chosen = word && { target: { kind: "token" as const, token: word.token }, position: word.position };
  const explained = isWaiting || request === null ? null : { ...request, ...chosen };
  const next = word?.position == null ? null : (candidates?.[0] ?? null);
  const shown = useQuery({ ...circuitQuery(explained), enabled: !isStopped });
  const error = isDefault ? (routed.error ?? predicted.error ?? shown.error) : shown.error;
  return { explained, next, ...shown, error };
}

/** Whether the request was stopped, and how to stop it, null while nothing is computed, or to go on. */
function useStop(run: string, request: CircuitRequest | null) {
  const queries = useQueryClient();
  const [stopped, setStopped] = useState<CircuitRequest | null>(null);
  const isTask = ({ queryKey: [, of, kind] }: Query) => of === run && TASKS.includes(String(kind));
  const isRunning = useIsFetching({ predicate: isTask }) > 0;
  const isStopped = request !== null && stopped === request;
  const stop = () => {
    // At once, whatever is computed next.
    setStopped(request);
    void queries.cancelQueries({ predicate: isTask }, { revert: true });
  };
  return { isStopped, stop: isRunning && !isStopped ? stop : null, resume: () => setStopped(null) };
}

/** What is traced, without a chosen target; null without a prompt. */
function useRequest(run: RunSummary, params: ViewProps["params"]) {
  const { prompt, layers, target, at, errors, nodes } = params;
  const others = useOtherRuns(run, layers);
  const request = useMemo(() => {
    if (others === undefined || prompt === "") return null;
    return { runs: [run.name, ...others], text: prompt, target, position: at, errors, nodes: Math.round(nodes) };
  }, [others, run.name, prompt, target, at, errors, nodes]);
  return { others, request };
}

function Circuits({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CIRCUIT_PARAMS);
  const { prompt, target, at } = params;
  const { others, request } = useRequest(run, params);
  const { isStopped, stop, resume } = useStop(run.name, request);
  const isDefault = at === null && target === MOST_PROBABLE;
  const { explained, next, data, error, refetch } = useCircuit(request, isDefault, isStopped);
  const choose = (text: string) => setParams({ prompt: text, target: MOST_PROBABLE, at: null, node: null }, "push");
  const draft = usePromptDraft(prompt, choose, null);
  return (
    <>
      <PromptRow
        run={run}
        draft={draft}
        action="Trace"
        onSubmit={() => {
          resume();
          draft.commit();
        }}
        onExample={(example) => choose(continuationPrompt(example))}
        onStop={stop}
      />
      <Layers run={run} chosen={others ?? []} onChoose={(names) => setParams({ layers: names, node: null }, "push")}>
        <Choices {...{ params, setParams }} />
      </Layers>
      {prompt === "" && (
        <EmptyState title="Type a text to trace its next token">
          <p>
            The circuit shows the experts behind a prediction. Every one of them is ablated in the model, which takes
            some seconds.
          </p>
          <Button onClick={() => choose(EXAMPLE)}>Trace an example</Button>
        </EmptyState>
      )}
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {prompt !== "" && error === null && (data === undefined || explained === null) && !isStopped && (
        <PromptLoading run={run} label="Tracing back from the target">
          <Progress of={circuitQuery(explained).queryKey} />
        </PromptLoading>
      )}
      {data === undefined && isStopped && (
        <EmptyState title="Stopped">
          <Button onClick={resume}>Trace again</Button>
        </EmptyState>
      )}
      {error === null && data !== undefined && explained !== null && (
        <CircuitView
          key={data.graph.label}
          response={data}
          request={explained}
          {...{ next, isStopped, params, setParams }}
        />
      )}
    </>
  );
}

export default function CircuitsPage() {
  return (
    <>
      <title>Circuit · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Circuit" }]} />
      <WithRun>{(run) => <Circuits key={run.name} run={run} />}</WithRun>
    </>
  );
}

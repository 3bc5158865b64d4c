/** Circuits: the experts behind a target, through all layers that have a run. Every number is predicted and measured. */

import { useMutation, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { circuitCheckQuery, circuitQuery } from "@/api/circuits";
import { fetchSnapshot } from "@/api/mutations";
import type {
  CircuitCheck,
  CircuitGraph,
  CircuitNode,
  CircuitRequest,
  CircuitResponse,
  CircuitTarget,
  RunSummary,
} from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useShare } from "@/components/layout/share";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { PromptRow } from "@/components/prompt/prompt-row";
import { WithRun } from "@/components/runs/current-run";
import { LinkedText } from "@/components/terms/linked-text";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useDebouncedValue } from "@/hooks/use-debounced-value";
import { type UrlState, useUrlState } from "@/hooks/use-url-state";
import { saveFile } from "@/lib/browser/save-file";
import { formatPercent, formatProbability } from "@/lib/text/format";
import { continuationPrompt } from "@/lib/text/prompts";
import { Layers, useOtherRuns } from "@/pages/prompt/layers";

import { Graph } from "./graph";
import { NodePanel } from "./panel";
import { CIRCUIT_PARAMS, MOST_PROBABLE } from "./params";
import { ExpertTable } from "./table";
import { verdict } from "./verdict";

import "./circuits.css";

const SHOWN = 6;

interface TargetBarProps {
  readonly graph: CircuitGraph;
  readonly onChange: (target: CircuitTarget) => void;
}

interface AgainstProps extends TargetBarProps {
  readonly token: number;
}

/** The token whose logit is subtracted. */
function Against({ graph, token, onChange }: AgainstProps) {
  return (
    <label>
      Contrast with{" "}
      <select
        value={graph.target.kind === "difference" ? graph.target.other : ""}
        onChange={({ currentTarget: { value } }) =>
          onChange(value === "" ? { kind: "token", token } : { kind: "difference", token, other: Number(value) })
        }
      >
        <option value="">the mean of all tokens</option>
        {graph.candidates
          .filter(({ id }) => id !== token)
          .map(({ id, text }) => (
            <option key={id} value={id}>
              {JSON.stringify(text)}
            </option>
          ))}
      </select>
    </label>
  );
}

function Continuation({ graph, onChange }: TargetBarProps) {
  const [text, setText] = useState(graph.target.kind === "continuation" ? graph.target.text : "");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onChange(text === "" ? MOST_PROBABLE : { kind: "continuation", text });
      }}
    >
      <input
        className="field"
        aria-label="Continuation to explain"
        placeholder="Another text, with its space"
        value={text}
        onChange={({ currentTarget }) => setText(currentTarget.value)}
      />
    </form>
  );
}

/** Choice of the target: a likely next token, its difference from another, or a continuation. */
function TargetBar({ graph, onChange }: TargetBarProps) {
  const { target, candidates } = graph;
  const token = target.kind === "token" || target.kind === "difference" ? (target.token ?? null) : null;
  return (
    <div className="target-bar" role="group" aria-label="Target">
      <span className="dim">Explain</span>
      {candidates.slice(0, SHOWN).map(({ id, text, probability }) => (
        <Button
          key={id}
          size="small"
          variant={id === token ? "chosen" : "plain"}
          aria-pressed={id === token}
          onClick={() => onChange({ kind: "token", token: id })}
        >
          <TokenChip text={text} /> <span className="num">{formatProbability(probability)} %</span>
        </Button>
      ))}
      {token !== null && <Against graph={graph} token={token} onChange={onChange} />}
      <Continuation graph={graph} onChange={onChange} />
      {target.kind === "expert" && (
        <>
          <b>{graph.label}</b>
          <Button size="small" icon="close" onClick={() => onChange(MOST_PROBABLE)}>
            Back to the next token
          </Button>
        </>
      )}
    </div>
  );
}

/** Offered while no prompt is typed. */
const EXAMPLE = "The doctor told the old man that he would have to stay in the";

/** What all parts of the page show. */
interface CircuitParts extends UrlState<typeof CIRCUIT_PARAMS> {
  readonly response: CircuitResponse;
  /** Null until it is measured. */
  readonly check: CircuitCheck | null;
}

interface CheckedProps extends Pick<CircuitParts, "response" | "check"> {
  readonly error: Error | null;
}

/** What the graph is worth: a claim, and the figures that it rests on. */
function VerdictLine({ response: { graph }, check, error }: CheckedProps) {
  const found = check === null ? null : verdict(graph, check);
  return (
    <div
      className="circuit-verdict"
      data-level={found?.level}
      role="status"
      aria-busy={found === null && error === null}
    >
      <p>
        {error?.message ??
          (found === null ? (
            `Ablating each of the ${graph.nodes.length - 1} shown experts in the model…`
          ) : (
            <b>
              <Term id="circuit_verdict">{found.claim}</Term>
            </b>
          ))}
      </p>
      <dl>
        {found?.figures.map(({ name, value, note }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <b>{value}</b> {note}
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

/** The other figures. */
function Checks({ response: { graph }, check }: Pick<CheckedProps, "response" | "check">) {
  return (
    <section className="circuit-checks" aria-label="Checks" aria-busy={check === null}>
      <dl>
        {check !== null &&
          verdict(graph, check).details.map(({ name, value, note = "" }) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <b>{value}</b>
              </dd>
              <dd className="dim">
                <LinkedText text={note} />
              </dd>
            </div>
          ))}
      </dl>
    </section>
  );
}

interface SaveGraphProps {
  readonly request: CircuitRequest;
  readonly graph: CircuitGraph;
  readonly check: CircuitCheck | null;
}

function SaveGraph({ request, graph, check }: SaveGraphProps) {
  const { mutate, isPending, error } = useMutation({
    mutationFn: () => fetchSnapshot(request.runs[0] ?? "", { kind: "circuit", request, graph, check }),
    onSuccess: (files) => saveFile("circuit.json", JSON.stringify(files.graph), "application/json"),
  });
  return (
    <>
      {error !== null && <span role="alert">{error.message}</span>}
      <Button
        size="small"
        icon="download"
        disabled={isPending || check === null}
        title="Graph and measured effects in the format of circuit-tracer and Neuronpedia"
        onClick={() => mutate()}
      >
        Save graph
      </Button>
    </>
  );
}

interface GraphToolbarProps extends CircuitParts {
  readonly request: CircuitRequest;
}

function GraphToolbar({ response, request, check, params, setParams }: GraphToolbarProps) {
  const { graph } = response;
  return (
    <div className="circuit-toolbar">
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
        segments={[
          { value: "kept", label: "Original model" },
          { value: "dropped", label: "Layers replaced" },
        ]}
      />
      <SaveGraph request={request} graph={graph} check={check} />
    </div>
  );
}

interface ViewProps extends Omit<CircuitParts, "check"> {
  readonly request: CircuitRequest;
}

function CircuitView({ response, request, params, setParams }: ViewProps) {
  const { graph } = response;
  const { data: check = null, error } = useQuery(circuitCheckQuery(request, graph));
  useShare(request.runs[0] ?? "", () => ({ kind: "circuit", request, graph, check }));
  const [hovered, setHovered] = useState<number | null>(null);
  const selected = params.node < graph.nodes.length ? params.node : 0;
  const active = hovered ?? selected;
  const described = useDebouncedValue(active);
  const select = (node: number) => setParams({ node });
  const explain = ({ run, expert, position }: CircuitNode) => {
    if (run === null || expert === null) return;
    setParams({ target: { kind: "expert", run, expert }, at: position, node: 1 }, "push");
  };
  const parts = { response, check, params, setParams };
  return (
    <>
      <TargetBar graph={graph} onChange={(target) => setParams({ target, node: 1 }, "push")} />
      <VerdictLine response={response} check={check} error={error} />
      <div className="circuit-columns">
        <section className="circuit-main" aria-label="Graph">
          <p className="dim">
            Green supports the target, purple and dashed opposes it: how much the target{" "}
            <Term id="circuit_effect">changes</Term> without the expert. {formatPercent(graph.retained, 2)} % of all
            predicted effects are shown.
          </p>
          <Graph
            response={response}
            check={check}
            selected={selected}
            active={active}
            onSelect={select}
            onHover={setHovered}
          />
          <GraphToolbar {...parts} request={request} />
        </section>
        <aside className="circuit-panel" aria-label="Circuit details">
          <NodePanel
            response={response}
            check={check}
            index={described < graph.nodes.length ? described : 0}
            onSelect={select}
            onExplain={explain}
          />
        </aside>
      </div>
      <Checks response={response} check={check} />
      <section className="circuit-list" aria-label="Circuit as table">
        <ExpertTable response={response} check={check} onSelect={select} />
      </section>
    </>
  );
}

function Circuits({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CIRCUIT_PARAMS);
  const { prompt, layers, target, at, errors, nodes } = params;
  const others = useOtherRuns(run, layers);
  const request = useMemo(
    () =>
      others === undefined || prompt === ""
        ? null
        : {
            runs: [run.name, ...others],
            text: prompt,
            target,
            position: at,
            errors,
            nodes: Math.round(nodes),
          },
    [others, run.name, prompt, target, at, errors, nodes],
  );
  const { data, error, refetch } = useQuery(circuitQuery(request));
  const choose = (text: string) => setParams({ prompt: text, target: MOST_PROBABLE, at: null, node: 1 }, "push");
  const draft = usePromptDraft(prompt, choose, null);
  return (
    <>
      <PromptRow
        run={run}
        draft={draft}
        placeholder="Type or paste a text"
        action="Trace"
        onSubmit={draft.commit}
        onExample={(example) => choose(continuationPrompt(example))}
      />
      <Layers run={run} chosen={others ?? []} onChoose={(names) => setParams({ layers: names, node: 1 }, "push")} />
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
      {prompt !== "" && error === null && (data === undefined || request === null) && (
        <div className="prompted-empty">
          <LoadingState label="Tracing; the language model is loaded on first use" rows={14} />
        </div>
      )}
      {error === null && data !== undefined && request !== null && (
        <CircuitView key={data.graph.label} response={data} request={request} params={params} setParams={setParams} />
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

/** Circuits: attribution graph of a next token over the tokens and experts of all layers that have a run. */

import "@/components/prompt/prompt.css";
import "./check/check.css";
import "./circuits.css";
import "./panel/panel.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { type CircuitRequest, circuitQuery } from "@/api/circuits";
import { routingOptionsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { FromContext } from "@/components/prompt/from-context";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { WithRun } from "@/components/runs/current-run";
import { pickLayerRuns } from "@/components/runs/pick-layer-runs";
import { Button } from "@/components/ui/button";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { type SetParams, useUrlState, type Values } from "@/hooks/use-url-state";
import { continuationPrompt } from "@/lib/text/prompts";
import { LayerButtons } from "@/pages/prompt/routing/layer-buttons";

import { CheckedExamples } from "./check/checked-examples";
import { CIRCUIT_PARAMS, NO_MARKS } from "./circuit-params";
import { OpenedCircuit, TracedCircuit } from "./circuit-view";
import { OpenGraph } from "./file/file-buttons";
import type { OpenedGraph } from "./file/graph-file";

type Params = Values<typeof CIRCUIT_PARAMS>;

/** Names of the other runs; undefined while loading. */
function useOtherRuns(run: RunSummary, layers: Params["layers"]): readonly string[] | undefined {
  const { data, error } = useQuery(routingOptionsQuery(run.name));
  return useMemo(() => {
    if (data === undefined) return error === null ? undefined : [];
    const supported = data.layers.filter(({ method }) => method !== "autoencoder");
    if (layers === null) return pickLayerRuns(run, supported);
    return supported.filter(({ name }) => layers.includes(name)).map(({ name }) => name);
  }, [data, error, layers, run]);
}

interface EmptyPromptProps {
  /** Null while the other runs are loading. */
  readonly request: CircuitRequest | null;
  readonly nodes: number;
  readonly onChoose: (prompt: string) => void;
}

function EmptyPrompt({ request, nodes, onChoose }: EmptyPromptProps) {
  return (
    <div className="prompted-empty">
      <EmptyState title="Type a prompt to trace its next token">
        <p>
          The most probable next token is traced back through every trained layer: the experts that contribute to its
          logit, and the earlier experts and tokens that activated them.
        </p>
        <p>
          Each graph is checked: its experts are ablated one at a time. Many graphs fail. A graph holds attention,
          norms, the choice of experts and the MLPs without a run fixed, but the model changes them all when an expert
          is ablated. The more layers have a run, the less is held fixed.
        </p>
      </EmptyState>
      {request !== null && <CheckedExamples request={request} nodes={nodes} onChoose={onChoose} />}
    </div>
  );
}

interface TracedProps {
  readonly request: CircuitRequest;
  readonly params: Params;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

function Traced({ request, params, setParams }: TracedProps) {
  const { data, error, refetch, isPlaceholderData } = useQuery(circuitQuery(request, Math.round(params.nodes)));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) {
    return (
      <div className="prompted-empty">
        <LoadingState label="Tracing; the language model is loaded on first use" rows={14} />
      </div>
    );
  }
  return (
    <TracedCircuit response={data} request={isPlaceholderData ? null : request} params={params} setParams={setParams} />
  );
}

interface OpenedBarProps {
  readonly opened: OpenedGraph;
  readonly onTrace: () => void;
  readonly onClose: () => void;
}

function OpenedBar({ opened, onTrace, onClose }: OpenedBarProps) {
  return (
    <div className="opened-bar" role="status">
      <span>
        <b>{opened.name}</b>: {opened.response.graph.tokens.length} tokens, {opened.response.graph.nodes.length} nodes
      </span>
      <Button size="small" onClick={onTrace}>
        Trace this prompt here
      </Button>
      <Button size="small" variant="ghost" icon="close" onClick={onClose}>
        Close file
      </Button>
    </div>
  );
}

interface PromptRowProps {
  readonly run: RunSummary;
  readonly prompt: string;
  readonly onChoose: (prompt: string) => void;
  readonly onOpen: (opened: OpenedGraph) => void;
}

function PromptRow({ run, prompt, onChoose, onOpen }: PromptRowProps) {
  const draft = usePromptDraft(prompt, onChoose, null);
  return (
    <section className="prompt-row">
      <PromptBox
        label="Prompt"
        placeholder="Type or paste a prompt"
        value={draft.text}
        onChange={draft.setText}
        onSubmit={draft.commit}
      />
      <div className="prompt-actions">
        {run.indexed_tokens !== null && (
          <FromContext run={run.name} onChoose={(context) => onChoose(continuationPrompt(context))} />
        )}
        <OpenGraph onOpen={onOpen} />
        <Button variant="primary" disabled={draft.text === ""} onClick={draft.commit}>
          Trace<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
        </Button>
      </div>
    </section>
  );
}

function Circuits({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CIRCUIT_PARAMS);
  const [opened, setOpened] = useState<OpenedGraph | null>(null);
  const { prompt, layers, target, at, errors } = params;
  const others = useOtherRuns(run, layers);
  const request = useMemo(
    () => (others === undefined ? null : { runs: [run.name, ...others], text: prompt, target, position: at, errors }),
    [others, run.name, prompt, target, at, errors],
  );
  const choose = (text: string) => {
    setOpened(null);
    setParams({ prompt: text, target: null, at: null, ...NO_MARKS }, "push");
  };
  const open = (next: OpenedGraph) => {
    setOpened(next);
    setParams({ ...NO_MARKS, pinned: next.response.pinned, groups: next.response.supernodes });
  };
  const close = () => {
    setOpened(null);
    setParams(NO_MARKS);
  };
  const promptRow = <PromptRow run={run} prompt={prompt} onChoose={choose} onOpen={open} />;
  if (opened !== null) {
    return (
      <>
        {promptRow}
        <OpenedBar opened={opened} onTrace={() => choose(opened.response.prompt)} onClose={close} />
        <OpenedCircuit opened={opened} params={params} setParams={setParams} />
      </>
    );
  }
  return (
    <>
      {promptRow}
      <div className="circuit-layers">
        <LayerButtons
          run={run}
          chosen={others ?? []}
          onChoose={(names) => setParams({ layers: names, ...NO_MARKS }, "push")}
        />
      </div>
      {prompt === "" && <EmptyPrompt request={request} nodes={Math.round(params.nodes)} onChoose={choose} />}
      {prompt !== "" && request !== null && <Traced request={request} params={params} setParams={setParams} />}
    </>
  );
}

export default function CircuitsPage() {
  return (
    <>
      <title>Circuits · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Circuits" }]} />
      <WithRun>{(run) => <Circuits key={run.name} run={run} />}</WithRun>
    </>
  );
}

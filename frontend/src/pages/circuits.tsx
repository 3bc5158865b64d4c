/** Circuits: from which tokens and experts a next token comes, as a graph through the layers that have a run. */

import "@/components/prompt/prompt.css";
import "./circuits.css";
import "./circuits/panel.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { type CircuitAsked, circuitQuery } from "@/api/circuits";
import { liveQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Button } from "@/components/button";
import { WithRun } from "@/components/current-run";
import { oneOfEachLayer } from "@/components/one-of-each-layer";
import { FromContext } from "@/components/prompt/from-context";
import { Openings } from "@/components/prompt/openings";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import { usePromptDraft } from "@/components/prompt/prompt-draft";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { opening } from "@/lib/prompts";
import { type SetParams, useUrlState, type Values } from "@/url-state";

import { CIRCUIT_PARAMS } from "./circuits/circuit-params";
import { CircuitView } from "./circuits/circuit-view";
import { LayersChoice } from "./routing/other-layers";

type Params = Values<typeof CIRCUIT_PARAMS>;

/** Names of the other runs; undefined until it is known which there are. */
function useOthers(run: RunSummary, layers: Params["layers"]): readonly string[] | undefined {
  const { data, error } = useQuery(liveQuery(run.name));
  return useMemo(() => {
    if (data === undefined) return error === null ? undefined : [];
    const there = data.layers.filter(({ method }) => method !== "autoencoder");
    if (layers === null) return oneOfEachLayer(run, there);
    return there.filter(({ name }) => layers.includes(name)).map(({ name }) => name);
  }, [data, error, layers, run]);
}

function Nothing({ run, onChoose }: { readonly run: RunSummary; readonly onChoose: (prompt: string) => void }) {
  return (
    <div className="prompted-empty">
      <EmptyState title="Type the beginning of a text to see what makes its next token likely">
        The most probable next token is traced back through every layer that has a run: which experts add to its logit,
        which earlier experts and tokens made these active.
      </EmptyState>
      {run.indexed_tokens !== null && <Openings run={run.name} cut={opening} onChoose={onChoose} />}
    </div>
  );
}

interface TracedProps {
  readonly asked: CircuitAsked;
  readonly params: Params;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

function Traced({ asked, params, setParams }: TracedProps) {
  const { data, error, refetch } = useQuery(circuitQuery(asked, Math.round(params.nodes)));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) {
    return (
      <div className="prompted-empty">
        <LoadingState label="Tracing; the language model is loaded when it is first needed" rows={14} />
      </div>
    );
  }
  return <CircuitView response={data} asked={asked} params={params} setParams={setParams} />;
}

function Circuits({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(CIRCUIT_PARAMS);
  const { prompt, layers, target, at, errors } = params;
  const others = useOthers(run, layers);
  const afresh = { target: null, at: null, chosen: [] };
  const draft = usePromptDraft(prompt, (text) => setParams({ prompt: text, ...afresh }, "push"), null);
  const asked = useMemo(
    () => (others === undefined ? null : { runs: [run.name, ...others], text: prompt, target, position: at, errors }),
    [others, run.name, prompt, target, at, errors],
  );
  const choose = (text: string) => setParams({ prompt: text, ...afresh }, "push");
  return (
    <>
      <section className="prompt-row">
        <PromptBox
          label="Prompt"
          placeholder="Type or paste the beginning of a text"
          value={draft.text}
          onChange={draft.type}
          onSubmit={draft.commit}
        />
        <div className="prompt-actions">
          {run.indexed_tokens !== null && <FromContext run={run.name} onChoose={(it) => choose(opening(it))} />}
          <Button variant="primary" disabled={draft.text === ""} onClick={draft.commit}>
            Trace<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      <div className="circuit-layers">
        <LayersChoice
          run={run}
          chosen={others ?? []}
          onChoose={(names) => setParams({ layers: names, chosen: [] }, "push")}
        />
      </div>
      {prompt === "" && <Nothing run={run} onChoose={choose} />}
      {prompt !== "" && asked !== null && <Traced asked={asked} params={params} setParams={setParams} />}
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

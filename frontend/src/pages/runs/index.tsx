/** All runs, with what is missing. */

import "./runs.css";

import { useQuery } from "@tanstack/react-query";

import { runsQuery } from "@/api/queries";
import type { RunList, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { shortSource } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copy-button";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";

import { RUNS_PARAMS, RunsTable } from "./runs-table";

const names = (runs: readonly RunSummary[]) => runs.map(({ name }) => name).join(" ");

/** Runs of one language model, as one command accepts no others. */
function ofFirstModel(runs: readonly RunSummary[]): readonly RunSummary[] {
  return runs.filter(({ language_model: model }) => model === runs[0]?.language_model);
}

function steps(runs: readonly RunSummary[]) {
  const finished = runs.filter(({ status }) => status === "finished");
  const unevaluated = ofFirstModel(finished.filter(({ held_out: heldOut }) => heldOut === null));
  const unindexed = finished.find(({ indexed_tokens: tokens }) => tokens === null);
  const trained = runs.find(({ train_again_command: command }) => command !== null);
  const all = [
    {
      title: "Evaluate on held-out text",
      text: "Training MSE is measured on the text that a run is trained on. Held-out text shows how faithful it is.",
      command: unevaluated.length > 0 && `mxd evaluate ${names(unevaluated)} --dataset HELD_OUT_TEXT --tokens 100k`,
    },
    {
      title: "Index",
      text: `An index collects the examples on which each expert of ${unindexed?.name} fires.`,
      command: unindexed?.index_command,
    },
    {
      title: "Train another run",
      text: `The command trains ${trained?.name} with another seed, which shows how much results vary. It reads ${shortSource(trained?.text ?? "")}; name your own text if you do not have this file.`,
      command: trained?.train_again_command,
    },
  ];
  return all.flatMap(({ command, ...step }) => (command ? [{ ...step, command }] : []));
}

/** What the runs lack, with the commands for it. */
function NextSteps({ runs }: { readonly runs: readonly RunSummary[] }) {
  return (
    <section className="runs-next" aria-label="Next steps">
      {steps(runs).map(({ title, text, command }) => (
        <details key={title}>
          <summary>
            <b>{title}</b>
          </summary>
          <p className="ink2">{text}</p>
          <Command text={command} />
        </details>
      ))}
    </section>
  );
}

const TRAIN_COMMAND = "mxd train LANGUAGE_MODEL --layer 3 --dataset PATH_OR_DATASET --tokens 2M --k 16";

function Runs({ runs, losses, best, notes }: RunList) {
  const [{ sort, order }, setParams] = useUrlState(RUNS_PARAMS);
  const [model, ...otherModels] = new Set(runs.map((run) => run.language_model_name));
  const withModel = otherModels.length > 0;
  return (
    <>
      <p className="runs-note ink2">
        {!withModel && (
          <>
            {runs.length === 1 ? "The run replaces an MLP" : `The ${runs.length} runs replace MLPs`} of{" "}
            <span className="mono">{model}</span>.{" "}
          </>
        )}
        {losses.join(" ")}
      </p>
      <RunsTable {...{ runs, best, withModel }} sorting={{ sort, order }} onSort={(change) => setParams(change)} />
      {notes.length > 0 && <p className="runs-note ink2">{notes.join(" ")}</p>}
      <NextSteps runs={runs} />
    </>
  );
}

function RunsBody() {
  const { data, error, isPending, refetch } = useQuery(runsQuery);
  if (isPending) return <LoadingState label="Loading runs" rows={6} rowHeight={31} />;
  if (error !== null && data === undefined) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data.runs.length === 0) {
    return (
      <EmptyState title="No runs yet">
        A run is one layer of a language model, trained on a dataset. A first run takes a few minutes on two CPU cores:
        <Command text={TRAIN_COMMAND} />
      </EmptyState>
    );
  }
  return <Runs {...data} />;
}

export default function RunsPage() {
  return (
    <>
      <title>Runs · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Runs" }]} />
      <RunsBody />
    </>
  );
}

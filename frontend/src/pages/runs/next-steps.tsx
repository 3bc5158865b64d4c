/** What the runs lack, with the commands for it. */

import { useQuery } from "@tanstack/react-query";

import { runQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { shortSource } from "@/components/runs/run-labels";
import { trainCommand } from "@/components/runs/train-command";
import { Command } from "@/components/ui/copyable-command";

interface Step {
  readonly title: string;
  readonly text: string;
  readonly command: string;
}

const names = (runs: readonly RunSummary[]) => runs.map(({ name }) => name).join(" ");

/** Runs of one language model, as one command accepts no others. */
function ofFirstModel(runs: readonly RunSummary[]): readonly RunSummary[] {
  return runs.filter(({ language_model: model }) => model === runs[0]?.language_model);
}

function steps(runs: readonly RunSummary[]): readonly Step[] {
  const finished = runs.filter(({ status }) => status === "finished");
  const unevaluated = ofFirstModel(finished.filter(({ held_out: heldOut }) => heldOut === null));
  const unindexed = finished.find(({ indexed_tokens: tokens }) => tokens === null);
  return [
    ...(unevaluated.length === 0
      ? []
      : [
          {
            title: "Evaluate on held-out text",
            text: "Training MSE is measured on the text that a run is trained on. Held-out text shows how faithful it is.",
            command: `mxd evaluate ${names(unevaluated)} --dataset HELD_OUT_TEXT --tokens 100k`,
          },
        ]),
    ...(unindexed === undefined
      ? []
      : [
          {
            title: "Index",
            text: `An index collects the examples on which each expert of ${unindexed.name} fires.`,
            command: `mxd index ${unindexed.name} --dataset ${unindexed.text} --tokens 1M`,
          },
        ]),
  ];
}

/** The same run with another seed. */
function useAnotherSeed(run: RunSummary | undefined): readonly Step[] {
  const config = useQuery({ ...runQuery(run?.name ?? ""), enabled: run !== undefined }).data?.config;
  if (run === undefined || config === undefined) return [];
  const seed = String(run.seed + 1);
  return [
    {
      title: "Train another run",
      text: `The command trains ${run.name} with another seed, which shows how much results vary. It reads ${shortSource(run.text)}; name your own text if you do not have this file.`,
      command: trainCommand(run, config, { "--name": `${run.name}-seed${seed}`, "--seed": seed }),
    },
  ];
}

export function NextSteps({ runs }: { readonly runs: readonly RunSummary[] }) {
  const trained = runs.find(({ origin }) => origin === null);
  return (
    <section className="runs-next" aria-label="Next steps">
      {[...steps(runs), ...useAnotherSeed(trained)].map(({ title, text, command }) => (
        <div key={title}>
          <h2>{title}</h2>
          <p className="ink2">{text}</p>
          <Command text={command} />
        </div>
      ))}
    </section>
  );
}

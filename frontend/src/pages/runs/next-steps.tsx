/** What the runs lack, with the commands for it. */

import type { RunSummary } from "@/api/types";
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
  const [first] = runs;
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
    ...(first === undefined
      ? []
      : [
          {
            title: "Train another run",
            text: "Another seed shows how much results vary between runs. Options that are not named take their defaults.",
            command: `mxd train ${first.language_model} --layer ${first.layer} --dataset ${first.text} --tokens ${first.target_tokens || "2M"} --k ${first.k} --seed ${first.seed + 1}`,
          },
        ]),
  ];
}

export function NextSteps({ runs }: { readonly runs: readonly RunSummary[] }) {
  return (
    <section className="runs-next" aria-label="Next steps">
      {steps(runs).map(({ title, text, command }) => (
        <div key={title}>
          <h2>{title}</h2>
          <p className="ink2">{text}</p>
          <Command text={command} />
        </div>
      ))}
    </section>
  );
}

/** How to measure a frontier: a trained run at fewer active experts, or a run trained at another K. */

import type { RunSummary } from "@/api/types";
import { Command } from "@/components/ui/copyable-command";

/** A quarter and half of K, for a run whose weakest experts can be left out. */
const FEWER = [4, 2];
const NAMED_FRACTIONS = "a quarter and half of its experts";

/** The options of the run's own evaluation, so that the new one is on the same sequences. */
function sampleOptions({ held_out: found }: RunSummary): string {
  return found === null ? "--dataset HELD_OUT_TEXT --tokens 100k" : `--dataset ${found.text} --tokens ${found.tokens}`;
}

function fewerExperts(run: RunSummary): string {
  const ks = FEWER.map((factor) => Math.max(1, Math.round(run.k / factor)));
  return `mxd evaluate ${run.name} --k ${[...new Set([...ks, run.k])].join(",")} ${sampleOptions(run)}`;
}

/** Trains a run with twice the K, under a name that the second command evaluates. */
function anotherK(run: RunSummary): readonly [string, string] {
  const { language_model: model, layer, method, num_experts: count, text, target_tokens: tokens, k } = run;
  const name = `${run.name}-k${2 * k}`;
  return [
    `mxd train ${model} --name ${name} --layer ${layer} --method ${method} --num-experts ${count} --k ${2 * k} --dataset ${text} --tokens ${tokens || "2M"}`,
    `mxd evaluate ${name} ${sampleOptions(run)}`,
  ];
}

export function NoFrontier({ run }: { readonly run: RunSummary }) {
  const [train, evaluate] = anotherK(run);
  return (
    <section className="pane settings no-frontier">
      <h2>No frontier yet</h2>
      <p className="ink2">
        A frontier shows how the loss increase of a layer falls as more experts are active per token. It needs one layer
        at two or more K. Here, every layer was trained and evaluated at one K.
      </p>
      {run.has_top_k && (
        <div>
          <h3>At fewer experts, without training</h3>
          <p className="ink2">
            Evaluates {run.name} with {NAMED_FRACTIONS}. A run that is trained at a smaller K usually loses less at it.
          </p>
          <Command text={fewerExperts(run)} />
        </div>
      )}
      <div>
        <h3>At twice the K</h3>
        <p className="ink2">Trains a run of layer {run.layer} that differs only in K, and evaluates it.</p>
        <Command text={train} />
        <Command text={evaluate} />
      </div>
    </section>
  );
}

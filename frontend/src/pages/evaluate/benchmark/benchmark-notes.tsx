/** What the benchmark measures, on how much text, and what its intervals cover. */

import type { BenchmarkSummary, RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { Term } from "@/components/terms/term";
import { shortSource, unitName } from "@/components/runs/run-labels";
import { formatCount } from "@/lib/text/format";

const SAE_PROBES_URL = "https://github.com/sae-probes/sae-probes";
const SAE_PROBES_PAPER_URL = "https://arxiv.org/abs/2502.16681";

function formatRange([low, high]: readonly [number, number]): string {
  return low === high ? formatCount(low) : `${formatCount(low)} to ${formatCount(high)}`;
}

/** `Each with 200 training and 99 test texts; 3 seeds; last token of at most 64 tokens`. */
export function sampleSizes({ settings, training_texts: train, test_texts: test }: BenchmarkSummary): string {
  const seeds = settings.seeds.length === 1 ? "1 seed" : `${settings.seeds.length} seeds`;
  return `Each with ${formatRange(train)} training and ${formatRange(test)} test texts; ${seeds}; last token of at most ${formatCount(settings.tokens)} tokens`;
}

/** Numbers of units among which a probe selects, e.g. `8,192 experts of a`; empty if no run is in this database. */
export function poolSizes({ subjects }: BenchmarkSummary, runs: readonly RunSummary[]): string {
  const measured = subjects.flatMap(({ name }) => runs.find((run) => run.name === name) ?? []);
  const [first] = measured;
  if (first === undefined) return "";
  const units = measured.map((run) => `${formatCount(run.num_experts)} ${unitName(run)} of ${run.name}`);
  const neurons = first.origin === null ? [`${formatCount(first.hidden_width)} neurons`] : [];
  return [...units, ...neurons, `${formatCount(first.num_experts)} of the random gate`].join(", ");
}

export function BenchmarkNotes({ summary }: { readonly summary: BenchmarkSummary }) {
  const { settings, datasets } = summary;
  const { runs } = useCurrentRun();
  const pools = poolSizes(summary, runs);
  const run = runs.find(({ language_model: source }) => source === settings.language_model);
  return (
    <section className="pane settings benchmark-notes">
      <div className="pane-h">
        <h2>Method</h2>
      </div>
      <p>
        <a className="link" href={SAE_PROBES_URL}>
          sae-probes
        </a>{" "}
        {settings.sae_probes} is a benchmark made by others (
        <a className="link" href={SAE_PROBES_PAPER_URL}>
          paper
        </a>
        ). Each of its 113 data sets has texts of two classes. On the training texts, a probe selects the units whose
        class means differ most. It then fits a logistic regression with an L1 penalty to them. Its{" "}
        <Term id="roc_auc">ROC-AUC</Term> is measured on the test texts. Units are experts, features of a transcoder, or
        neurons of the MLP.
      </p>
      <p>
        Language model: {run?.language_model_name ?? shortSource(settings.language_model)}. Seeds:{" "}
        {settings.seeds.join(", ")}. Scores are means over seeds and data sets.
        {pools !== "" && ` Units are selected among ${pools}. A larger pool has an advantage at equal quality.`}
      </p>
      <p>
        Intervals are bootstrapped over data sets. Differences are paired by data set, so their intervals are narrower
        than those of scores. No interval is corrected for the number of comparisons.
      </p>
      <details>
        <summary>
          {formatCount(datasets.length)} {datasets.length === 1 ? "data set" : "data sets"}
        </summary>
        <ul>
          {datasets.map((name) => (
            <li key={name} className="mono">
              {name}
            </li>
          ))}
        </ul>
      </details>
    </section>
  );
}

/** Faithfulness: loss increase of runs, and whether it depends on their routing. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";

import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { withLegend } from "@/components/plots/axes/legend";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { FactsTable } from "@/components/runs/facts-table";
import { Findings } from "@/components/runs/evaluations/findings";
import { EvaluationWarnings, WithEvaluation } from "@/components/runs/latest-evaluation";
import { runSummaryLine, shortSource } from "@/components/runs/run-labels";
import { useIsNarrow } from "@/hooks/use-is-narrow";
import { formatCount } from "@/lib/text/format";

import { faithfulnessFigure, faithfulnessHeight } from "./faithfulness-figure";

function RunFaithfulness({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const isNarrow = useIsNarrow();
  return (
    <WithEvaluation run={run.name}>
      {(evaluation, others) => (
        <>
          <section className="pane settings">
            <div className="pane-h wrap">
              <h2>{run.name}</h2>
              <span className="note">
                {runSummaryLine(run)} · {formatCount(evaluation.tokens)} tokens in {formatCount(evaluation.sequences)}{" "}
                sequences of {shortSource(evaluation.text)}
                {evaluation.seen_text ? ", which it was trained on" : ""}
              </span>
            </div>
            <Findings run={run.name} facts={evaluation.faithfulness} />
            <EvaluationWarnings evaluation={evaluation} />
          </section>
          <ServerFigure
            name="faithfulness"
            height={(figure) => faithfulnessHeight(figure, isNarrow)}
            note="95 % intervals. Compare runs of one layer at equal routing shares. Reference: the MLP’s mean output."
            prepare={(figure) => faithfulnessFigure(figure, run.name, runs, isNarrow)}
          />
          <section className="pane settings">
            <div className="pane-h">
              <h2>All metrics</h2>
              <span className="note">
                95 % intervals: losses resample sequences, continuations count prompts (Wilson); none covers training
                seeds
              </span>
            </div>
            <FactsTable
              label="Faithfulness"
              facts={evaluation.faithfulness}
              others={others.map(({ text, faithfulness }) => ({ name: shortSource(text), facts: faithfulness }))}
            />
          </section>
          <ServerFigure name="added-layers" prepare={withLegend} />
        </>
      )}
    </WithEvaluation>
  );
}

export default function FaithfulnessPage() {
  return (
    <>
      <title>Faithfulness · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Faithfulness" }]} />
      <WithRun>{(run) => <RunFaithfulness run={run} />}</WithRun>
    </>
  );
}

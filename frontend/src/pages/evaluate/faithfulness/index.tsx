/** Faithfulness: loss increase of runs, and whether it depends on their routing. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";

import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { withLegend } from "@/components/plots/axes/legend";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { WithRun } from "@/components/runs/current-run";
import { FactsTable } from "@/components/runs/facts-table";
import { faithfulnessVerdict, routingVerdict } from "@/components/runs/evaluations/faithfulness-verdict";
import { EvaluationWarnings, WithEvaluation } from "@/components/runs/latest-evaluation";
import { shortSource } from "@/components/runs/run-labels";

import { faithfulnessFigure, routingFigure } from "./faithfulness-figure";

/** Comparison across runs. Empty figures are hidden. */
function ComparisonAcrossRuns() {
  return (
    <>
      <ServerFigure name="routing-frontier" prepare={routingFigure} />
      <ServerFigure name="added-layers" prepare={withLegend} />
    </>
  );
}

function RunFaithfulness({ run: { name: run } }: { readonly run: RunSummary }) {
  return (
    <WithEvaluation run={run}>
      {(evaluation, others) => (
        <>
          <section className="pane settings">
            <div className="pane-h">
              <h2>{run}</h2>
              <span className="note">
                {evaluation.tokens.toLocaleString("en")} tokens of {shortSource(evaluation.text)}
                {evaluation.seen_text ? ", which it was trained on" : ""}
              </span>
            </div>
            <p className="verdict">{faithfulnessVerdict(run, evaluation.faithfulness)}</p>
            <p className="verdict">{routingVerdict(evaluation.faithfulness)}</p>
            <EvaluationWarnings evaluation={evaluation} />
            <ServerFigure name="faithfulness" prepare={(figure) => faithfulnessFigure(figure, run)} />
            <FactsTable
              label="Faithfulness"
              facts={evaluation.faithfulness}
              others={others.map(({ text, faithfulness }) => ({ name: shortSource(text), facts: faithfulness }))}
            />
          </section>
          <ComparisonAcrossRuns />
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

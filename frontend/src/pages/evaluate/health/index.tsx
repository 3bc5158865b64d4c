/** Expert health: load balance, duplicates and ranks of a run's experts. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";

import { PageBar } from "@/components/layout/navigation/page-bar";
import { withLegend } from "@/components/plots/axes/legend";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { WithRun } from "@/components/runs/current-run";
import { FactsTable } from "@/components/runs/facts-table";
import { evaluateCommand, EvaluationWarnings, WithEvaluation } from "@/components/runs/latest-evaluation";

function RunHealth({ run }: { readonly run: string }) {
  const command = evaluateCommand(run);
  return (
    <WithEvaluation run={run}>
      {(evaluation) => (
        <>
          <section className="pane settings">
            <div className="pane-h">
              <h2>Experts of {run}</h2>
            </div>
            <EvaluationWarnings evaluation={evaluation} />
            <FactsTable label="Expert health" facts={evaluation.health} />
          </section>
          <ServerFigure name="load" run={run} command={command} prepare={withLegend} />
          <ServerFigure name="density-evaluated" run={run} command={command} height={280} />
        </>
      )}
    </WithEvaluation>
  );
}

export default function HealthPage() {
  return (
    <>
      <title>Expert health · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Expert health" }]} />
      <WithRun>{({ name }) => <RunHealth run={name} />}</WithRun>
    </>
  );
}

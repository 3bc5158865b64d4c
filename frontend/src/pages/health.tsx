/** Whether the run's experts share the work, differ, and are full maps. */

import "./run.css";
import "./evaluation.css";

import { WithRun } from "@/components/current-run";
import { FactsTable } from "@/components/facts-table";
import { withLegend } from "@/components/figure/legend";
import { ServerFigure } from "@/components/figure/server-figure";
import { PageBar } from "@/components/shell/page-bar";
import { evaluateCommand, Verdicts, WithEvaluation } from "@/components/with-evaluation";

function Measured({ run }: { readonly run: string }) {
  const command = evaluateCommand(run);
  return (
    <WithEvaluation run={run}>
      {(evaluation) => (
        <>
          <section className="pane settings">
            <div className="pane-h">
              <h2>Experts of {run}</h2>
            </div>
            <Verdicts evaluation={evaluation} />
            <FactsTable label="Health of the experts" facts={evaluation.health} />
          </section>
          <ServerFigure name="load" run={run} command={command} prepare={withLegend} />
          <ServerFigure name="usage-evaluated" run={run} command={command} height={280} />
        </>
      )}
    </WithEvaluation>
  );
}

export default function HealthPage() {
  return (
    <>
      <title>Health · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Health" }]} />
      <WithRun>{({ name }) => <Measured run={name} />}</WithRun>
    </>
  );
}

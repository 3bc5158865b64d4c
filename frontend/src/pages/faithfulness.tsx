/** What runs add to the loss, and whether their routing has anything to do with it. */

import "./run.css";
import "./evaluation.css";

import type { RunSummary } from "@/api/types";
import { WithRun } from "@/components/current-run";
import { FactsTable } from "@/components/facts-table";
import { withLegend } from "@/components/figure/legend";
import { ServerFigure } from "@/components/figure/server-figure";
import { PageBar } from "@/components/shell/page-bar";
import { Verdicts, WithEvaluation } from "@/components/with-evaluation";

const textName = (text: string) => text.split("/").at(-1) ?? text;

function OfRun({ run: { name: run, layer, last_layer: last } }: { readonly run: RunSummary }) {
  return (
    <WithEvaluation run={run}>
      {(evaluation, others) => (
        <>
          <section className="pane settings">
            <div className="pane-h">
              <h2>{run}</h2>
              <span className="note">
                {evaluation.tokens.toLocaleString("en")} tokens of {textName(evaluation.text)}
                {evaluation.seen_text ? ", which it was fitted on" : ""}
              </span>
            </div>
            <Verdicts evaluation={evaluation} />
            <FactsTable
              label="Faithfulness"
              facts={evaluation.faithfulness}
              others={others.map(({ text, faithfulness }) => ({ name: textName(text), facts: faithfulness }))}
            />
          </section>
          {layer !== last && <ServerFigure name="layer-errors" run={run} prepare={withLegend} />}
        </>
      )}
    </WithEvaluation>
  );
}

/** What other runs add beside; where nothing is measured, it has been said of this one. */
function AllRuns() {
  return (
    <>
      <ServerFigure name="faithfulness" prepare={withLegend} />
      <ServerFigure name="routing-frontier" prepare={withLegend} />
      <ServerFigure name="added-layers" prepare={withLegend} />
    </>
  );
}

export default function FaithfulnessPage() {
  return (
    <>
      <title>Faithfulness · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Faithfulness" }]} />
      <WithRun>{(run) => <OfRun run={run} />}</WithRun>
      <AllRuns />
    </>
  );
}

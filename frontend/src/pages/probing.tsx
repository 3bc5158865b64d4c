/** How well single experts tell labelled texts apart. */

import "./run.css";
import "./evaluation.css";

import { WithRun } from "@/components/current-run";
import { withLegend } from "@/components/figure/legend";
import { ServerFigure } from "@/components/figure/server-figure";
import { PageBar } from "@/components/shell/page-bar";

function Probed({ run }: { readonly run: string }) {
  const command = `mxd probe ${run} --labels FILE`;
  return (
    <>
      <ServerFigure name="probing" command={command} height={460} prepare={withLegend} />
      <ServerFigure name="probe-coefficients" run={run} command={command} height={280} prepare={withLegend} />
    </>
  );
}

export default function ProbingPage() {
  return (
    <>
      <title>Probing · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Probing" }]} />
      <WithRun>{({ name }) => <Probed run={name} />}</WithRun>
    </>
  );
}

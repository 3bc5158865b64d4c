/** How well single experts tell labelled texts apart. */

import "./run.css";
import "./evaluation.css";

import { useQuery } from "@tanstack/react-query";

import { probesQuery } from "@/api/queries";
import { Command } from "@/components/command";
import { WithRun } from "@/components/current-run";
import { withLegend } from "@/components/figure/legend";
import { categoriesHeight, panelsHeight } from "@/components/figure/panels";
import { ServerFigure } from "@/components/figure/server-figure";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";

import { ProbeTable } from "./probing/probe-table";

function NotProbed({ run }: { readonly run: string }) {
  return (
    <EmptyState title="Not probed yet">
      Which expert tells one kind of text from the others is measured on labelled texts: a file with a text and its
      label in each line.
      <Command text={`mxd probe ${run} --labels FILE.jsonl`} />
    </EmptyState>
  );
}

function Probed({ run }: { readonly run: string }) {
  const { data, error, refetch } = useQuery(probesQuery(run));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the probes" rows={8} />;
  if (data.probes.length === 0) return <NotProbed run={run} />;
  return (
    <>
      {data.probes.map((probe) => (
        <ProbeTable key={`${probe.labels} ${probe.level}`} probe={probe} />
      ))}
      <ServerFigure name="probe-coefficients" run={run} height={panelsHeight} prepare={withLegend} />
    </>
  );
}

export default function ProbingPage() {
  return (
    <>
      <title>Probing · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Probing" }]} />
      <WithRun>
        {({ name }) => (
          <>
            <Probed run={name} />
            <ServerFigure name="probing" run={name} height={categoriesHeight} prepare={withLegend} />
          </>
        )}
      </WithRun>
    </>
  );
}

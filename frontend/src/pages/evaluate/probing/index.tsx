/** Probing: how well single experts separate labelled texts. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./probing.css";

import { useQueries, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { probesQuery } from "@/api/queries";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { withLegend } from "@/components/plots/axes/legend";
import { panelsHeight } from "@/components/plots/axes/panels";
import { ServerFigure } from "@/components/plots/figure/server-figure";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { choiceParam, useUrlState } from "@/hooks/use-url-state";

import { METRICS } from "./probe-metrics";
import { ProbeResult } from "./probe-result";

/** The names of the runs that were probed; undefined while they load. */
function useProbedRuns(): readonly string[] | undefined {
  const { runs } = useCurrentRun();
  const results = useQueries({ queries: runs.map(({ name }) => probesQuery(name)) });
  if (results.some(({ isPending }) => isPending)) return undefined;
  return runs.filter((_, i) => (results[i]?.data?.probes.length ?? 0) > 0).map(({ name }) => name);
}

/** Links to runs whose probes can be seen. */
function ProbedRuns({ probed }: { readonly probed: readonly string[] }) {
  return (
    <>
      {probed.map((name, i) => (
        <span key={name}>
          {i > 0 && ", "}
          <Link className="link mono" to={pageLinks(name).page("probing")}>
            {name}
          </Link>
        </span>
      ))}
      .
    </>
  );
}

/** Says so, how to probe this run, and which runs have results. */
function NotProbed({ run }: { readonly run: string }) {
  const probed = useProbedRuns();
  if (probed === undefined) return <LoadingState label="Loading probes" rows={8} />;
  return <HowToProbe run={run} probed={probed} />;
}

interface HowToProbeProps {
  readonly run: string;
  readonly probed: readonly string[];
}

function HowToProbe({ run, probed }: HowToProbeProps) {
  return (
    <EmptyState title={`${run} has not been probed yet`}>
      <p>
        A probe measures how well single experts separate classes of text, for example languages or topics. It selects
        experts on validation texts and scores them once on test texts, beside the best MLP neuron and a random gate. It
        needs labelled texts, a JSONL file with a text and a label per line:
      </p>
      <Command text={'{"text": "Preheat the oven to 180 degrees.", "label": "recipe"}'} />
      <Command text={`mxd probe ${run} --labels FILE.jsonl`} />
      If the label has another name, pass it with <code>--label-column</code>. This page then shows a verdict, a table
      and figures.
      {probed.length > 0 && (
        <p>
          Runs with results: <ProbedRuns probed={probed} />
        </p>
      )}
    </EmptyState>
  );
}

/** Plotly draws nothing into a closed section, so the figure is rendered once it is open. */
function ClassFigures({ run }: { readonly run: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <section className="pane settings">
      <details className="more-metrics" onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Activations inside and outside each class</summary>
        {isOpen && <ServerFigure name="probe-coefficients" run={run} height={panelsHeight} prepare={withLegend} />}
      </details>
    </section>
  );
}

const PROBING_PARAMS = { metric: choiceParam(METRICS, "roc-auc") };

function ProbeResults({ run }: { readonly run: string }) {
  const { data } = useQuery(probesQuery(run));
  const [{ metric }, setParams] = useUrlState(PROBING_PARAMS);
  return (
    <>
      {data?.probes.map((probe) => (
        <ProbeResult
          key={`${probe.labels} ${probe.level}`}
          run={run}
          probe={probe}
          metric={metric}
          onMetric={(chosen) => setParams({ metric: chosen })}
        />
      ))}
      <ClassFigures run={run} />
    </>
  );
}

function Probes({ run }: { readonly run: string }) {
  const { data, error, refetch } = useQuery(probesQuery(run));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading probes" rows={8} />;
  return data.probes.length === 0 ? <NotProbed run={run} /> : <ProbeResults run={run} />;
}

export default function ProbingPage() {
  return (
    <>
      <title>Probing · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Probing" }]} />
      <WithRun>{({ name }) => <Probes run={name} />}</WithRun>
    </>
  );
}

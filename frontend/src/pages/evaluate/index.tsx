/** Evaluate: the verdict on the runs of one MLP, the health of the current run's experts, and all other results folded. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef } from "react";
import { Link, useLocation, useNavigate } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import type { RunSummary, Verdict as VerdictData, VerdictMetric } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { formatVerdict, methodName } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { formatCompact, formatCount } from "@/lib/text/format";

import { Benchmark } from "./benchmark";
import { DotTable } from "./dots";
import { Faithfulness, Health } from "./evaluation";
import { Frontier } from "./frontier";
import { Matches } from "./matches";
import { Probes } from "./probes";

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./evaluate.css";

const ARROWS = { lower: "↓ lower is better", higher: "↑ higher is better" } as const;

function MetricHead({ metric }: { readonly metric: VerdictMetric }) {
  return (
    <>
      {metric.title}
      <span className="dim">{metric.description}</span>
      {metric.better !== null && <span className="dim">{ARROWS[metric.better]}</span>}
    </>
  );
}

function VerdictTable({ verdict: { runs, metrics } }: { readonly verdict: VerdictData }) {
  const links = usePageLinks();
  const columns = runs.map((run) => ({
    key: run.name,
    name: run.name,
    head: (
      <>
        <Link to={links.run(run.name)}>{run.name}</Link>
        <span className="dim">
          {methodName(run.method)}, K {run.k}, {formatCompact(run.parameters)} parameters,{" "}
          {formatCompact(run.trained_tokens)} tokens
        </span>
      </>
    ),
  }));
  const rows = metrics.map((metric) => ({
    key: metric.key,
    head: <MetricHead metric={metric} />,
    format: (value: number) => formatVerdict(value, metric.unit),
    dots: runs.map(({ name, cells }) => {
      const cell = cells.find(({ key }) => key === metric.key);
      return cell === undefined ? null : { ...cell, isBest: metric.best === name };
    }),
  }));
  return <DotTable label="Metrics by run" corner="Metric" axis="row" columns={columns} rows={rows} />;
}

/** Layers of which several runs were evaluated, for a run that is the only one of its layer. */
function ComparedLayers({ run }: { readonly run: RunSummary }) {
  const { runs } = useCurrentRun();
  const evaluated = runs.filter(({ held_out: found }) => found !== null);
  const isSameMlp = (a: RunSummary, b: RunSummary) => a.language_model === b.language_model && a.layer === b.layer;
  const firsts = evaluated.filter(
    (one, i) => !isSameMlp(one, run) && evaluated.findIndex((other) => isSameMlp(one, other)) === i,
  );
  const several = firsts.filter((one) => evaluated.filter((other) => isSameMlp(one, other)).length > 1);
  if (several.length === 0) return null;
  return (
    <p>
      Runs side by side:{" "}
      {several.map(({ name, layer }) => (
        <Link key={name} className="link" to={pageLinks(name).page("evaluate")}>
          layer {layer}
        </Link>
      ))}
    </p>
  );
}

/** The evaluated runs of one MLP side by side, a dot with its interval for each metric. */
function Verdict({ run }: { readonly run: RunSummary }) {
  const { data: report, error, refetch } = useQuery(evaluationsQuery(run.name));
  const data = report?.verdict;
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the verdict" rows={10} />;
  if (data.runs.length === 0)
    return (
      <EmptyState title="Not evaluated yet">
        {data.sentence} Run:
        <Command text={`mxd evaluate ${run.name} --dataset HELD_OUT_TEXT --tokens 100k`} />
      </EmptyState>
    );
  const tokens = data.runs[0]?.evaluated_tokens ?? 0;
  return (
    <section className="pane settings evaluate-verdict" aria-label="Verdict">
      <h2>{data.sentence}</h2>
      {data.notes.map((note) => (
        <p key={note} className="note">
          {note}
        </p>
      ))}
      {data.runs.length === 1 && <ComparedLayers run={run} />}
      <VerdictTable verdict={data} />
      <p className="note">
        Layer {run.layer} of {run.language_model_name}, {formatCount(tokens)} tokens; 95&nbsp;% intervals. A filled dot
        leads with an interval apart from all others. Losses are compared by sequence in the sentence above, which is
        sharper than their intervals.
      </p>
    </section>
  );
}

interface FoldProps {
  /** Hash of the address that opens it. */
  readonly id: string;
  readonly title: string;
  readonly note: string;
  readonly children: ReactNode;
}

/** A closed section; the address says which one is open, and only that one is rendered. */
function Fold({ id, title, note, children }: FoldProps) {
  const { hash, search, pathname } = useLocation();
  const navigate = useNavigate();
  const isOpen = hash === `#${id}`;
  const element = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (isOpen) element.current?.scrollIntoView({ block: "start" });
  }, [isOpen]);
  return (
    <details className="fold" ref={element} open={isOpen}>
      <summary
        onClick={(event) => {
          event.preventDefault();
          void navigate({ pathname, search, hash: isOpen ? "" : id }, { replace: true, preventScrollReset: true });
        }}
      >
        <b>{title}</b> <span className="note">{note}</span>
      </summary>
      {isOpen && children}
    </details>
  );
}

function Evaluation({ run }: { readonly run: RunSummary }) {
  return (
    <>
      <Verdict run={run} />
      <Health run={run} />
      <Fold id="faithfulness" title="Faithfulness" note={`all metrics of ${run.name}, on every text`}>
        <Faithfulness run={run} />
      </Fold>
      <Fold id="frontier" title="Frontier" note={`loss and error of the runs of layer ${run.layer} by K`}>
        <Frontier run={run} />
      </Fold>
      <Fold id="benchmark" title="Benchmark" note="sparse probes on the data sets of sae-probes">
        <Benchmark run={run} />
      </Fold>
      <Fold id="probing" title="Probing" note="single experts against neurons and a random gate, on labelled texts">
        <Probes run={run} />
      </Fold>
      <Fold id="compare" title="Compare" note="experts matched with another run, and the settings that differ">
        <Matches run={run} />
      </Fold>
    </>
  );
}

export default function EvaluatePage() {
  return (
    <>
      <title>Evaluate · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Evaluate" }]} />
      <WithRun>{(run) => <Evaluation key={run.name} run={run} />}</WithRun>
    </>
  );
}

/** Benchmark: sparse probes on the data sets of sae-probes, for runs, neurons and an untrained gate. */

import "@/pages/run/run.css";
import "@/styles/content/evaluation.css";
import "./benchmark.css";

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { benchmarkQuery } from "@/api/queries";
import type { BenchmarkSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { FigureView } from "@/components/plots/figure/figure-view";
import { useCurrentRun } from "@/components/runs/current-run";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatPlural } from "@/lib/text/format";

import { benchmarkHeight, differenceFigure, scoreFigure } from "./benchmark-figure";
import { BenchmarkNotes, sampleSizes } from "./benchmark-notes";
import { benchmarkVerdict } from "./benchmark-verdict";
import { datasetChoice } from "./dataset-choice";
import { DifferenceTable, ScoreTable } from "./score-tables";

/** The command for the current run and the other runs of its MLP. */
function NoBenchmark() {
  const { summary, runs } = useCurrentRun();
  const others = runs.filter(
    (run) =>
      run.name !== summary?.name && run.language_model === summary?.language_model && run.layer === summary.layer,
  );
  const names = summary === null ? "RUN" : [summary, ...others].map(({ name }) => name).join(" ");
  return (
    <EmptyState title="No benchmark yet">
      <p>
        The benchmark measures how well a few experts separate classes of text, on 113 data sets made by others. It
        compares the first run with the other runs, with the neurons of the MLP, and with an untrained gate.
      </p>
      <Command text={`mxd benchmark ${names} --texts 300 --tokens 64`} />
      Without the two options, it uses up to 5,000 texts per data set and 1,024 tokens per text. An interrupted
      benchmark continues with the same command. This page then shows a verdict, a figure and tables.
    </EmptyState>
  );
}

const LIST = new Intl.ListFormat("en-GB");

/** Says so if the current run is not the one with the differences, or not measured at all. */
function MeasuredRuns({ summary }: { readonly summary: BenchmarkSummary }) {
  const { name } = useCurrentRun();
  const measured = summary.subjects.filter(({ kind }) => kind === "run").map((subject) => subject.name);
  if (name === null || name === measured[0]) return null;
  const text = measured.includes(name)
    ? `Differences are those of ${measured[0] ?? ""}, the first run of the benchmark. ${name} is one of the others.`
    : `Measured for ${LIST.format(measured)}; ${name} has no result.`;
  return <p className="ink2">{text}</p>;
}

function Differences({ summary }: { readonly summary: BenchmarkSummary }) {
  const figure = useMemo(() => differenceFigure(summary), [summary]);
  const first = summary.subjects[0]?.name ?? "";
  return (
    <section className="pane settings">
      <FigureView
        figure={figure}
        note={`ROC-AUC of ${first} minus the other’s, paired by data set (${formatCount(summary.datasets.length)}), with 95 % intervals; right of 0: ${first} is better`}
        height={benchmarkHeight(summary.subjects.length - 1, summary)}
      />
      <p className="ink2">Bold: the interval excludes zero.</p>
      <DifferenceTable summary={summary} />
    </section>
  );
}

function Scores({ summary }: { readonly summary: BenchmarkSummary }) {
  const figure = useMemo(() => scoreFigure(summary), [summary]);
  return (
    <section className="pane settings">
      <FigureView
        figure={figure}
        note={`with 95 % intervals over ${formatPlural(summary.datasets.length, "data set")}, which differ in difficulty`}
        height={benchmarkHeight(summary.subjects.length, summary)}
      />
      <ScoreTable summary={summary} />
    </section>
  );
}

function Results({ summary }: { readonly summary: BenchmarkSummary }) {
  const { title, comparisons, resolution } = benchmarkVerdict(summary);
  return (
    <>
      <section className="pane settings">
        <div className="pane-h wrap">
          <h2>{title}</h2>
          <span className="note">
            mean ROC-AUC of sparse probes; a difference is clear if its interval excludes zero
          </span>
        </div>
        <MeasuredRuns summary={summary} />
        <ul className="benchmark-verdict" aria-label="Comparisons">
          {comparisons.map((comparison) => (
            <li key={comparison}>{comparison}</li>
          ))}
        </ul>
        <p>{resolution}</p>
        <p className="ink2">
          {datasetChoice(summary.datasets)}. {sampleSizes(summary)}.
        </p>
      </section>
      <Differences summary={summary} />
      <Scores summary={summary} />
      <BenchmarkNotes summary={summary} />
    </>
  );
}

function Benchmark() {
  const { data, error, refetch } = useQuery(benchmarkQuery);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading benchmark" rows={12} rowHeight={36} />;
  return data === null ? <NoBenchmark /> : <Results summary={data} />;
}

export default function BenchmarkPage() {
  return (
    <>
      <title>Benchmark · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Benchmark" }]} />
      <Benchmark />
    </>
  );
}

/** Benchmark: sparse probes on the data sets of sae-probes, for runs, neurons and an untrained gate. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { evaluationsQuery } from "@/api/queries";
import type { Benchmark as Results, BenchmarkScore, RunSummary } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { shortSource, unitName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPlural, formatSigned } from "@/lib/text/format";

import { DotTable } from "./dots";

const CHANCE = 0.5;
const METRIC = "auc";

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
      benchmark continues with the same command.
    </EmptyState>
  );
}

/** The name of a subject, with a link if it is a run of this database. */
function SubjectName({ name }: { readonly name: string }) {
  const { runs } = useCurrentRun();
  if (!runs.some((run) => run.name === name)) return name;
  return (
    <Link className="link" to={pageLinks(name).run(name)}>
      {name}
    </Link>
  );
}

interface TableProps<Score extends BenchmarkScore> {
  readonly label: string;
  readonly summary: Results;
  readonly subjects: readonly string[];
  readonly scores: readonly Score[];
  readonly reference: number;
  readonly format: (value: number) => string;
  readonly note?: (score: Score) => string;
}

/** A row per subject, a column per number of units. */
function ScoreTable<Score extends BenchmarkScore>(props: TableProps<Score>) {
  const { label, summary, subjects, scores, reference, format, note } = props;
  const { units } = summary.settings;
  const columns = units.map((count) => formatPlural(count, "unit"));
  const rows = subjects.map((subject) => {
    const found = units.map((count) =>
      scores.find((one) => one.metric === METRIC && one.subject === subject && one.units === count),
    );
    return {
      key: subject,
      head: <SubjectName name={subject} />,
      format,
      dots: found.map((score) => score?.mean ?? null),
      ...(note && { notes: found.map((score) => score && <span className="dim">{note(score)}</span>) }),
    };
  });
  return (
    <DotTable
      label={label}
      corner={label}
      axis="table"
      reference={reference}
      columns={columns.map((name) => ({ key: name, name, head: name }))}
      rows={rows}
    />
  );
}

function formatRange([low, high]: readonly [number, number]): string {
  return low === high ? formatCount(low) : `${formatCount(low)} to ${formatCount(high)}`;
}

function Method({ summary, subjects }: { readonly summary: Results; readonly subjects: readonly string[] }) {
  const { settings, datasets, training_texts: train, test_texts: test } = summary;
  const { runs } = useCurrentRun();
  const pools = subjects.flatMap((name) => runs.find((run) => run.name === name) ?? []);
  return (
    <>
      <p className="note">
        <a className="link" href="https://github.com/sae-probes/sae-probes">
          sae-probes
        </a>{" "}
        {settings.sae_probes} (
        <a className="link" href="https://arxiv.org/abs/2502.16681">
          paper
        </a>
        ) has 113 data sets with texts of two classes. A probe selects the units whose class means differ most, and fits
        a logistic regression with an L1 penalty to them. Its <Term id="roc_auc">ROC-AUC</Term> is measured on test
        texts. Here: {formatPlural(datasets.length, "data set")} with {formatRange(train)} training and{" "}
        {formatRange(test)} test texts each, seeds {settings.seeds.join(", ")}, last token of at most{" "}
        {formatCount(settings.tokens)} tokens, language model {shortSource(settings.language_model)}.{" "}
        {pools.length > 0 &&
          `Units are selected among ${pools.map((run) => `${formatCount(run.num_experts)} ${unitName(run)} of ${run.name}`).join(", ")}; a larger pool has an advantage at equal quality.`}
      </p>
      <p className="note">
        95 % intervals are bootstrapped over data sets, and not corrected for the number of comparisons. Differences are
        paired by data set.
      </p>
      <details className="more-metrics">
        <summary>{formatPlural(datasets.length, "data set")}</summary>
        <p className="mono">{datasets.join(", ")}</p>
      </details>
    </>
  );
}

export function Benchmark({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(evaluationsQuery(run.name));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading benchmark" rows={12} rowHeight={36} />;
  const { benchmark, benchmark_problem: problem } = data;
  if (problem !== null) return <EmptyState title="The benchmark cannot be read">{problem}</EmptyState>;
  if (benchmark === null) return <NoBenchmark />;
  const subjects = [...new Set(benchmark.scores.map((score) => score.subject))];
  const [first, ...others] = subjects;
  return (
    <section className="pane settings">
      <ScoreTable
        label={`Differences: ROC-AUC of ${first ?? ""} minus`}
        summary={benchmark}
        subjects={others}
        scores={benchmark.differences}
        reference={0}
        format={(value) => formatSigned(value, 3)}
        note={({ better }) => `higher on ${better} of ${benchmark.datasets.length}`}
      />
      <ScoreTable
        label="Scores: mean ROC-AUC"
        summary={benchmark}
        subjects={subjects}
        scores={benchmark.scores}
        reference={CHANCE}
        format={(value) => formatFixed(value, 3)}
      />
      <Method summary={benchmark} subjects={subjects} />
    </section>
  );
}

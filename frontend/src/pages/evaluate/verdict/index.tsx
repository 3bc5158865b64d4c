/** Verdict: the evaluated runs of one MLP side by side, a dot with its interval for each metric. */

import "./verdict.css";

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { verdictQuery } from "@/api/queries";
import type { RunSummary, Verdict, VerdictCell, VerdictMetric } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { methodName } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { formatCompact, formatCount, formatFixed, formatPercent } from "@/lib/text/format";

const DIGITS = { nats: 4, plain: 3 } as const;

function formatValue(value: number, unit: VerdictMetric["unit"]): string {
  return unit === "share" ? `${formatPercent(value, 1)} %` : formatFixed(value, DIGITS[unit]);
}

/** Ends of a metric's axis: all intervals, with a margin so that no dot is cut off. */
function axisOf(key: string, { runs }: Verdict): readonly [number, number] {
  const ends = runs.flatMap(({ cells }) =>
    cells.filter((cell) => cell.key === key).flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]),
  );
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.08 * (high - low || Math.abs(high) || 1);
  return [low - margin, high + margin];
}

interface DotProps {
  readonly cell: VerdictCell;
  readonly axis: readonly [number, number];
  readonly isBest: boolean;
}

function Dot({ cell: { value, low, high }, axis: [start, end], isBest }: DotProps) {
  const percent = (at: number) => `${(100 * (at - start)) / (end - start)}%`;
  return (
    <svg className="verdict-dot" aria-hidden="true">
      {low !== null && high !== null && <line x1={percent(low)} x2={percent(high)} y1="50%" y2="50%" />}
      <circle cx={percent(value)} cy="50%" r="4.5" className={isBest ? "best" : ""} />
    </svg>
  );
}

interface CellProps {
  readonly cell: VerdictCell | undefined;
  readonly metric: VerdictMetric;
  readonly axis: readonly [number, number];
  readonly isBest: boolean;
}

function Cell({ cell, metric, axis, isBest }: CellProps) {
  if (cell === undefined) return <td className="dim">not measured</td>;
  const format = (value: number) => formatValue(value, metric.unit);
  return (
    <td>
      <Dot cell={cell} axis={axis} isBest={isBest} />
      <span className={isBest ? "num best" : "num"}>
        {format(cell.value)}
        {isBest && <span className="sr">, best</span>}
      </span>
      {cell.low !== null && cell.high !== null && (
        <span className="dim num">
          {format(cell.low)} to {format(cell.high)}
        </span>
      )}
    </td>
  );
}

const ARROWS = { lower: "↓ lower is better", higher: "↑ higher is better" } as const;

function VerdictTable({ verdict }: { readonly verdict: Verdict }) {
  const links = usePageLinks();
  return (
    <div className="verdict-scroll">
      <table className="verdict">
        <thead>
          <tr>
            <th scope="col">Metric</th>
            {verdict.runs.map((run) => (
              <th key={run.name} scope="col">
                <Link to={links.run(run.name)}>{run.name}</Link>
                <span className="dim">
                  {methodName(run.method)}, K {run.k}, {formatCompact(run.parameters)} parameters,{" "}
                  {formatCompact(run.trained_tokens)} tokens
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {verdict.metrics.map((metric) => (
            <tr key={metric.key}>
              <th scope="row">
                {metric.title}
                <span className="dim">{metric.description}</span>
                {metric.better !== null && <span className="dim">{ARROWS[metric.better]}</span>}
              </th>
              {verdict.runs.map((run) => (
                <Cell
                  key={run.name}
                  cell={run.cells.find(({ key }) => key === metric.key)}
                  metric={metric}
                  axis={axisOf(metric.key, verdict)}
                  isBest={metric.best === run.name}
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Content({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(verdictQuery(run.name));
  const links = usePageLinks();
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the verdict" rows={10} />;
  if (data.runs.length === 0)
    return (
      <EmptyState title="Not evaluated yet">
        {data.sentence} Run:
        <Command text={`mxd evaluate ${run.name} --dataset HELD_OUT_TEXT`} />
      </EmptyState>
    );
  const tokens = data.runs[0]?.evaluated_tokens ?? 0;
  return (
    <section className="verdict-page" aria-label="Verdict">
      <h2>{data.sentence}</h2>
      {data.notes.map((note) => (
        <p key={note} className="note">
          {note}
        </p>
      ))}
      <VerdictTable verdict={data} />
      <p className="note">
        Layer {run.layer} of {run.language_model_name}, {formatCount(tokens)} tokens; 95&nbsp;% intervals. A filled dot
        leads with an interval apart from all others. Losses are compared by sequence in the sentence above, which is
        sharper than their intervals.
      </p>
      <nav className="verdict-more" aria-label="Details">
        <Link to={links.page("faithfulness")}>All metrics of {run.name}</Link>
        <Link to={links.page("health")}>Health of its experts</Link>
        <Link to={links.page("compare")}>Experts matched with another run</Link>
      </nav>
    </section>
  );
}

export default function VerdictPage() {
  return (
    <>
      <title>Verdict · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Verdict" }]} />
      <WithRun>{(run) => <Content run={run} />}</WithRun>
    </>
  );
}

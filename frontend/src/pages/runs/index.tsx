/** Table of all runs. */

import "./runs.css";

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { runsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { hasTokenCount, methodName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useNow } from "@/hooks/use-now";
import { formatAgo, formatCompact, formatCount, formatFixed, formatPercent } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

import { StatusWord } from "./status-word";

const TRAIN_COMMAND = "mxd train LANGUAGE_MODEL --layer 3 --dataset PATH_OR_DATASET --tokens 2M --k 16";

const NOT_RECORDED = (
  <span className="dim" title="No training metrics are recorded for this run">
    –
  </span>
);

function Progress({ run }: { readonly run: RunSummary }) {
  if (!hasTokenCount(run)) return <span className="dim">unknown</span>;
  const share = run.target_tokens > 0 ? Math.min(1, run.trained_tokens / run.target_tokens) : 0;
  return (
    <>
      {share < 1 && (
        <i className="progress" aria-hidden="true">
          <i style={{ width: `${100 * share}%` }} />
        </i>
      )}
      {formatCompact(run.trained_tokens)}
      {share < 1 && <span className="dim"> of {formatCompact(run.target_tokens)}</span>}
    </>
  );
}

interface RunRowProps {
  readonly run: RunSummary;
  readonly others: readonly RunSummary[];
  readonly now: number;
  readonly withModel: boolean;
}

/** Link to a comparison with the only other run, or to choose one. */
function CompareLink({ run, others }: Pick<RunRowProps, "run" | "others">) {
  const [other, ...rest] = others;
  if (other === undefined) return null;
  const params: Readonly<Record<string, string>> = rest.length === 0 ? { with: other.name } : {};
  return (
    <Link className="link" to={pageLinks(run.name).page("compare", params)}>
      Compare<span className="sr"> {run.name} with another run</span>
    </Link>
  );
}

function RunRow({ run, others, now, withModel }: RunRowProps) {
  const links = usePageLinks();
  const metric = run.last_metric;
  return (
    <tr>
      <td className="r-name">
        <Link className="mono" to={links.run(run.name)}>
          {run.name}
        </Link>
      </td>
      <td>
        <StatusWord status={run.status} />
      </td>
      {withModel && <td className="r-model mono">{run.language_model_name}</td>}
      <td className="num">{run.layer}</td>
      <td className="r-size">{methodName(run.method)}</td>
      <td className="num r-size">{formatCount(run.num_experts)}</td>
      <td className="num r-size">{run.k}</td>
      <td className="num r-tokens">
        <Progress run={run} />
      </td>
      <td className="num r-metric">{metric === null ? NOT_RECORDED : formatFixed(metric.normalized_mse, 4)}</td>
      <td className="num r-metric">{metric === null ? NOT_RECORDED : formatPercent(metric.dead_share, 1)}</td>
      <td className="num r-metric">
        {run.active_experts === null ? <span className="dim">not indexed</span> : formatCount(run.active_experts)}
      </td>
      <td className="num dim r-updated">{formatAgo(run.updated_at, now)}</td>
      <td className="r-compare">
        <CompareLink run={run} others={others} />
      </td>
    </tr>
  );
}

interface Column {
  readonly name: string;
  readonly unit?: string;
  readonly className?: string;
  readonly term?: TermId;
}

const COLUMNS: readonly Column[] = [
  { name: "Run", className: "r-name", term: "run" },
  { name: "Status" },
  { name: "Language model", className: "r-model" },
  { name: "Layer", className: "num", term: "layer" },
  { name: "Method", className: "r-size", term: "method" },
  { name: "Experts", unit: "N", className: "num r-size", term: "expert" },
  { name: "Active", unit: "K", className: "num r-size", term: "k" },
  { name: "Tokens", className: "num r-tokens", term: "trained_tokens" },
  { name: "MSE", className: "num r-metric", term: "training_mse" },
  { name: "Dead", unit: "% train", className: "num r-metric", term: "training_dead" },
  { name: "Active in index", className: "num r-metric", term: "active_experts" },
  { name: "Updated", className: "num r-updated" },
];

/** Runs in training first, then by language model and layer. */
function sorted(runs: readonly RunSummary[]): readonly RunSummary[] {
  const isDone = ({ status }: RunSummary) => Number(status !== "training");
  return runs.toSorted(
    (a, b) =>
      isDone(a) - isDone(b) ||
      a.language_model_name.localeCompare(b.language_model_name) ||
      a.layer - b.layer ||
      a.name.localeCompare(b.name),
  );
}

function RunsTable({ runs }: { readonly runs: readonly RunSummary[] }) {
  const now = useNow(10_000);
  const [model, ...otherModels] = new Set(runs.map((run) => run.language_model_name));
  const withModel = otherModels.length > 0;
  return (
    <>
      {!withModel && (
        <p className="runs-note ink2">
          {runs.length === 1 ? "The run replaces an MLP" : `The ${runs.length} runs replace MLPs`} of{" "}
          <span className="mono">{model}</span>.
        </p>
      )}
      <RunsGrid runs={sorted(runs)} now={now} withModel={withModel} />
    </>
  );
}

function RunsGrid({
  runs,
  ...shared
}: { readonly runs: readonly RunSummary[] } & Pick<RunRowProps, "now" | "withModel">) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="runs-box" role="region" aria-label="Runs" tabIndex={0}>
      <table className="grid plain runs-table">
        <thead>
          <tr>
            {COLUMNS.filter(({ className }) => shared.withModel || className !== "r-model").map(
              ({ name, unit, className, term }) => (
                <th key={name} className={className} scope="col">
                  {term === undefined ? name : <Term id={term}>{name}</Term>} <span className="unit">{unit}</span>
                </th>
              ),
            )}
            <th className="r-compare" scope="col">
              <span className="sr">Compare</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <RunRow key={run.name} run={run} others={runs.filter((other) => other !== run)} {...shared} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function RunsBody() {
  const { data, error, isPending, refetch } = useQuery(runsQuery);
  if (isPending) return <LoadingState label="Loading runs" rows={6} rowHeight={31} />;
  if (error !== null && data === undefined) return <ErrorState error={error} onRetry={() => void refetch()} />;
  const runs = data.runs;
  if (runs.length === 0) {
    return (
      <EmptyState title="No runs yet">
        A run is one layer of a language model, trained on a dataset. A first run takes a few minutes on two CPU cores:
        <Command text={TRAIN_COMMAND} />
      </EmptyState>
    );
  }
  return <RunsTable runs={runs} />;
}

export default function RunsPage() {
  return (
    <>
      <title>Runs · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Runs" }]} />
      <RunsBody />
    </>
  );
}

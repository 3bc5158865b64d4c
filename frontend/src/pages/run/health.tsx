/** Activation densities and dead experts of a run, from its index. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";

import { evaluationsQuery, figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { withSparseDensityAxis } from "@/components/plots/axes/axes";
import { Plot } from "@/components/plots/plot";
import { evaluateCommand } from "@/components/runs/latest-evaluation";
import { pageLinks } from "@/components/runs/page-links";
import { formatVerdict, inUnits } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copyable-command";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

/** The verdict's metrics of one run, with a link to the comparison. */
export function Faithfulness({ run }: { readonly run: string }) {
  const { data: report, error, refetch } = useQuery(evaluationsQuery(run));
  const data = report?.verdict;
  const own = data?.runs.find(({ name }) => name === run);
  return (
    <section className="pane settings">
      <div className="pane-h">
        <h2>Faithfulness</h2>
        {own !== undefined && (
          <span className="note">
            {formatCount(own.evaluated_tokens)} tokens{own.seen_text ? " that it was trained on" : ""}, 95 % intervals
          </span>
        )}
        <span className="grow" />
        <Link className="link" to={pageLinks(run).page("evaluate")}>
          Beside the other runs
        </Link>
      </div>
      {error !== null && <ErrorState error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <LoadingState label="Loading evaluation" rows={2} rowHeight={20} />}
      {data !== undefined && own === undefined && (
        <>
          <p className="ink2">To measure how much worse the language model predicts text with this layer, run:</p>
          <Command text={evaluateCommand(run)} />
        </>
      )}
      {own !== undefined && (
        <>
          <p className="verdict">{data?.sentence}</p>
          <dl className="main-results">
            {data?.metrics.map(({ key, title, unit, description }) => {
              const cell = own.cells.find((one) => one.key === key);
              if (cell === undefined) return null;
              const { value, low, high } = cell;
              return (
                <div key={key}>
                  <dt>{title}</dt>
                  <dd className="value">{formatVerdict(value, unit)}</dd>
                  {low !== null && high !== null && (
                    <dd className="dim">
                      {formatVerdict(low, unit)} to {formatVerdict(high, unit)}
                    </dd>
                  )}
                  <dd className="ink2">{description}</dd>
                </div>
              );
            })}
          </dl>
        </>
      )}
    </section>
  );
}

const HEIGHT = 206;

function HealthFigures({ run }: { readonly run: RunSummary }) {
  const metric = run.last_metric;
  const dead = run.active_experts === null ? null : run.num_experts - run.active_experts;
  return (
    <div className="health-figures big-figures">
      {dead !== null && (
        <div>
          <b>{formatPercent(dead / run.num_experts, 1)} %</b>
          <span>
            <Term id="dead_share">dead</Term>: {formatCount(dead)} of {formatCount(run.num_experts)}, active on none of{" "}
            {formatCount(run.indexed_tokens ?? 0)} indexed tokens
          </span>
        </div>
      )}
      {metric !== null && (
        <div>
          <b>{formatFixed(metric.l0, 1)}</b>
          <span>
            <Term id="l0">active per token</Term> in training
          </span>
        </div>
      )}
      {metric !== null && (
        <div>
          <b>{formatPercent(metric.max_density, 1)} %</b>
          <span>
            <Term id="density">density</Term> {inUnits("of the most used expert in training", run)}
          </span>
        </div>
      )}
    </div>
  );
}

function DensityHistogram({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(figureQuery("density-histogram", { run: run.name }));
  const figure = useMemo(
    () => data && withSparseDensityAxis(data, run.k / run.num_experts),
    [data, run.k, run.num_experts],
  );
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (figure === undefined) return <LoadingState label="Loading histogram" rows={6} rowHeight={32} />;
  return <Plot figure={figure} height={HEIGHT} label={figure.title} />;
}

export function Health({ run }: { readonly run: RunSummary }) {
  const isIndexed = run.indexed_tokens !== null;
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Expert health</h2>
        <span className="grow" />
        {run.held_out !== null && (
          <Link className="link" to={pageLinks(run.name).page("evaluate")}>
            All metrics
          </Link>
        )}
      </div>
      <HealthFigures run={run} />
      {isIndexed ? (
        <DensityHistogram run={run} />
      ) : (
        <>
          <p className="ink2">To measure how often each expert fires, run:</p>
          <Command text={`mxd index ${run.name} --dataset ${run.text} --tokens 1M`} />
        </>
      )}
    </section>
  );
}

/** How the experts of a run are used, from its index. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";

import { figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Command } from "@/components/command";
import { percentUsageAxis } from "@/components/figure/axes";
import { Plot } from "@/components/figure/plot";
import { pageLinks } from "@/components/links";
import { ErrorState, LoadingState } from "@/components/states";
import { formatCompact, formatCount, formatFixed, formatPercent } from "@/lib/format";

const HEIGHT = 206;

function Figures({ run }: { readonly run: RunSummary }) {
  const metric = run.last_metric;
  const dead = run.experts_active === null ? null : run.num_experts - run.experts_active;
  return (
    <div className="health-figures big-figures">
      {dead !== null && (
        <div>
          <b>{formatPercent(dead / run.num_experts, 1)} %</b>
          <span>dead, {formatCount(dead)} experts</span>
        </div>
      )}
      {metric !== null && (
        <div>
          <b>{formatFixed(metric.l0, 1)}</b>
          <span>active per token, of {run.k}</span>
        </div>
      )}
      {metric !== null && (
        <div>
          <b>{formatPercent(metric.largest_usage, 1)} %</b>
          <span>most used expert</span>
        </div>
      )}
    </div>
  );
}

function UsageHistogram({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(figureQuery("usage-histogram", { run: run.name }));
  const figure = useMemo(() => data && percentUsageAxis(data, run.k / run.num_experts), [data, run.k, run.num_experts]);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (figure === undefined) return <LoadingState label="Loading the histogram" rows={6} rowHeight={32} />;
  return <Plot figure={figure} height={HEIGHT} label={figure.title} />;
}

export function Health({ run }: { readonly run: RunSummary }) {
  const isIndexed = run.indexed_tokens !== null;
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Expert health</h2>
        {isIndexed && <span className="note">usage over {formatCompact(run.indexed_tokens ?? 0)} indexed tokens</span>}
        <span className="grow" />
        {isIndexed && (
          <Link className="link" to={pageLinks(run.name).page("experts")}>
            Browse
          </Link>
        )}
      </div>
      <Figures run={run} />
      {isIndexed ? (
        <UsageHistogram run={run} />
      ) : (
        <>
          <p className="ink2">Which experts are used, and where, is known after one pass over some text:</p>
          <Command text={`mxd index ${run.name} --text ${run.text} --tokens 1M`} />
        </>
      )}
    </section>
  );
}

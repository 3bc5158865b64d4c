/** Steering evaluation of a sample of the run's experts, with baselines. */

import { useQuery } from "@tanstack/react-query";

import { figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Plot } from "@/components/plots/plot";
import { inUnits } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { ErrorState, LoadingState } from "@/components/ui/states";

const HEIGHT = 420;

function Curves({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(figureQuery("steering", { run: run.name }));
  if (data?.total === 0) {
    return (
      <>
        <p className="ink2">Not measured yet. To measure it, run:</p>
        <Command text={`mxd ablate ${run.name} && mxd evaluate-steering ${run.name}`} />
      </>
    );
  }
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading strength sweeps" rows={8} rowHeight={32} />;
  return <Plot figure={data} height={HEIGHT} label={data.title} />;
}

export function Steering({ run }: { readonly run: RunSummary }) {
  if (run.indexed_tokens === null) return null;
  return (
    <section className="pane run-steering">
      <div className="pane-h">
        <h2>Steering</h2>
        <span className="note">
          {inUnits("do experts change texts more than random experts and random directions?", run)}
        </span>
      </div>
      <Curves run={run} />
    </section>
  );
}

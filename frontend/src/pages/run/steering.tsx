/** What turning a sample of the run's experts up does to texts, beside controls. */

import { useQuery } from "@tanstack/react-query";

import { figureQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { Command } from "@/components/command";
import { Plot } from "@/components/figure/plot";
import { ErrorState, LoadingState } from "@/components/states";

const HEIGHT = 420;

function Curves({ run }: { readonly run: RunSummary }) {
  const { data, error, refetch } = useQuery(figureQuery("steering", { run: run.name }));
  if (data?.total === 0) {
    return (
      <>
        <p className="ink2">
          Whether turning experts up does more to texts than a random direction, these two measure:
        </p>
        <Command text={`mxd influence ${run.name} && mxd evaluate-steering ${run.name}`} />
      </>
    );
  }
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the dose curves" rows={8} rowHeight={32} />;
  return <Plot figure={data} height={HEIGHT} label={data.title} />;
}

export function Steering({ run }: { readonly run: RunSummary }) {
  if (run.indexed_tokens === null) return null;
  return (
    <section className="pane run-steering">
      <div className="pane-h">
        <h2>Steering</h2>
        <span className="note">medians over a sample of experts, against random experts and random directions</span>
      </div>
      <Curves run={run} />
    </section>
  );
}

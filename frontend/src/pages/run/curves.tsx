/** Training curves, one at a time, with live points and with another run's for comparison. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { figureQuery } from "@/api/queries";
import type { CurveName, RunDetail, RunSummary } from "@/api/types";
import { FigureView } from "@/components/plots/figure-view";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { choiceParam, textParam } from "@/hooks/use-url-state";

const CURVES: Readonly<Record<CurveName, { readonly label: string; readonly note: string }>> = {
  normalized_mse: { label: "MSE", note: "in training, log" },
  dead_share: {
    label: "Dead share",
    note: "share of experts active on none of the last 262,144 training tokens, or of all so far",
  },
  l0: { label: "L0", note: "mean per token" },
  stable_rank: { label: "Rank", note: "mean of up to 8 experts’ matrices, measured at checkpoints" },
  tokens_per_second: { label: "Throughput", note: "of training" },
};
const NAMES = Object.keys(CURVES) as CurveName[];

export const RUN_PARAMS = {
  curve: choiceParam(NAMES, "normalized_mse"),
  /** Another run to compare with. */
  compare: textParam(null),
};

function NoCurve({ run }: { readonly run: RunSummary }) {
  return (
    <section className="pane no-curve">
      {run.status === "training" ? (
        <EmptyState title="No metrics yet">The first ones appear a few seconds after training starts.</EmptyState>
      ) : (
        <EmptyState title="No training curve">This database has no training metrics of {run.name}.</EmptyState>
      )}
    </section>
  );
}

const HEIGHT = 430;

interface CurvesProps {
  readonly detail: RunDetail;
  readonly curve: CurveName;
  readonly compare: string | null;
  readonly refetchInterval: number | false;
  readonly onCurve: (curve: CurveName) => void;
  /** Controls next to the curve selector. */
  readonly children?: ReactNode;
}

export function Curves({ detail: { run, metrics }, curve, compare, refetchInterval, onCurve, children }: CurvesProps) {
  const query = { run: run.name, curve, ...(compare !== null && { compare }) };
  const { data, error, refetch } = useQuery({
    ...figureQuery("training", query),
    ...{ refetchInterval, placeholderData: keepPreviousData },
  });
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading training curve" rows={8} rowHeight={61} />;
  if (data.drawn === 0) return <NoCurve run={run} />;
  const shown = NAMES.filter((name) => name === curve || metrics.some((metric) => metric[name] != null));
  return (
    <section className="pane">
      <FigureView
        figure={data}
        title={data.title.replace(` of ${run.name}`, "")} // the page's heading has the name
        note={`${CURVES[curve].note}; line: moving average`}
        height={HEIGHT}
        controls={
          <>
            <SegmentedControl
              label="Curve"
              value={curve}
              onChange={onCurve}
              segments={shown.map((value) => ({ value, label: CURVES[value].label }))}
            />
            {children}
          </>
        }
      />
    </section>
  );
}

/** Training curves, one at a time, with another run's for comparison. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";
import { Link } from "react-router";

import { figureQuery } from "@/api/queries";
import type { RunDetail, RunSummary } from "@/api/types";
import { FigureView } from "@/components/plots/figure/figure-view";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { type CurveName, CURVES } from "@/pages/run/run-params";

import { CURVE_LABELS, curveFigure, mergeCurve } from "./curve-figure";

const HEIGHT = 330;
const NO_COMPARISON = "—";

interface CurvesProps {
  readonly detail: RunDetail;
  readonly curve: CurveName;
  readonly compare: string | null;
  /** Tokens at the end of the axis. */
  readonly axisEnd: number;
  readonly onCurve: (curve: CurveName) => void;
  /** Controls next to the curve selector. */
  readonly children?: ReactNode;
}

interface CompareMenuProps {
  readonly run: string;
  readonly compare: string | null;
  readonly onCompare: (run: string | null) => void;
}

export function CompareMenu({ run, compare, onCompare }: CompareMenuProps) {
  const others = useCurrentRun().runs.filter((other) => other.name !== run);
  if (others.length === 0) return null;
  return (
    <MenuTrigger>
      <TriggerButton className={compare === null ? "btn sm" : "btn sm on"}>
        {compare ?? "Compare"}
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          aria-label="Compare with"
          selectionMode="single"
          selectedKeys={[compare ?? NO_COMPARISON]}
          onAction={(key) => onCompare(key === NO_COMPARISON ? null : String(key))}
        >
          <MenuItem id={NO_COMPARISON}>None</MenuItem>
          {others.map((other) => (
            <MenuItem key={other.name} id={other.name} className="mono">
              {other.name}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

function useCurveFigure({
  detail,
  curve,
  compare,
  axisEnd,
}: Pick<CurvesProps, "detail" | "curve" | "compare" | "axisEnd">) {
  const { run, metrics } = detail;
  const heldOut = curve === "normalized_mse" ? (run.held_out?.normalized_mse ?? null) : null;
  const own = useQuery(figureQuery("training", { run: run.name }));
  const other = useQuery({ ...figureQuery("training", { run: compare ?? "" }), enabled: compare !== null });
  const others = useMemo(
    () =>
      other.data === undefined || compare === null ? null : { run: compare, curve: mergeCurve(other.data, [], curve) },
    [other.data, curve, compare],
  );
  const figure = useMemo(
    () =>
      curveFigure({
        name: curve,
        curve: mergeCurve(own.data, metrics, curve),
        run: run.name,
        axisEnd,
        other: others,
        heldOut,
      }),
    [own.data, others, metrics, curve, axisEnd, run.name, heldOut],
  );
  const hasRanks = mergeCurve(own.data, metrics, "stable_rank").values.length > 0;
  const missing = others?.curve.values.length === 0 ? `; not measured for ${others.run}` : "";
  return { figure, missing, hasRanks, isPending: own.isPending, error: own.error, refetch: own.refetch };
}

function NoCurve({ run }: { readonly run: RunSummary }) {
  return (
    <section className="pane no-curve">
      {run.origin !== null ? (
        <EmptyState title="Imported run">
          An imported run has no training curve. Measure its loss increase (ΔCE) with mxd evaluate.
        </EmptyState>
      ) : run.status !== "training" ? (
        <EmptyState title="No training curve">
          This database has no training metrics of {run.name}. Its error on held-out text is on{" "}
          <Link to={`${pageLinks(run.name).page("evaluate")}#faithfulness`}>Faithfulness</Link>.
        </EmptyState>
      ) : (
        <EmptyState title="No metrics yet">The first ones appear a few seconds after training starts.</EmptyState>
      )}
    </section>
  );
}

export function Curves({ detail, curve, compare, axisEnd, onCurve, children }: CurvesProps) {
  const { figure, missing, hasRanks, isPending, error, refetch } = useCurveFigure({ detail, curve, compare, axisEnd });
  const labels = CURVE_LABELS[curve];
  if (isPending) return <LoadingState label="Loading training curves" rows={10} rowHeight={30} />;
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  const curveSelector = (
    <SegmentedControl
      label="Curve"
      value={curve}
      onChange={onCurve}
      segments={CURVES.filter((name) => name !== "stable_rank" || name === curve || hasRanks).map((name) => ({
        value: name,
        label: CURVE_LABELS[name].segment,
      }))}
    />
  );
  if (figure.drawn === 0) return <NoCurve run={detail.run} />;
  return (
    <section className="pane">
      <FigureView
        figure={figure}
        title={labels.title}
        note={`${labels.note}; line: moving average${missing}`}
        height={HEIGHT}
        controls={
          <>
            {curveSelector}
            {children}
          </>
        }
      />
    </section>
  );
}

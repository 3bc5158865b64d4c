/** Training curves, one at a time, with live points and with another run's for comparison. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { Link } from "react-router";

import { runQuery } from "@/api/queries";
import type { FigureData, MetricPoint, RunDetail, RunSummary } from "@/api/types";
import { logTicks } from "@/components/plots/figure";
import { FigureView } from "@/components/plots/figure-view";
import { pageLinks } from "@/components/runs/page-links";
import { SegmentedControl } from "@/components/ui/segmented-control";
import { EmptyState, ErrorState } from "@/components/ui/states";
import { choiceParam, textParam } from "@/hooks/use-url-state";

export const CURVES = ["normalized_mse", "dead_share", "l0", "stable_rank", "tokens_per_second"] as const;
export type CurveName = (typeof CURVES)[number];

export const RUN_PARAMS = {
  curve: choiceParam(CURVES, "normalized_mse"),
  /** Another run to compare with. */
  compare: textParam(null),
};

interface CurveLabels {
  readonly title: string;
  readonly segment: string;
  readonly scale: "log" | "linear";
  readonly digits: number;
  readonly note: string;
}

export const CURVE_LABELS: Readonly<Record<CurveName, CurveLabels>> = {
  normalized_mse: { title: "Normalised MSE", segment: "MSE", scale: "log", digits: 4, note: "in training, log" },
  dead_share: {
    title: "Dead share",
    segment: "Dead share",
    scale: "linear",
    digits: 4,
    note: "share of experts active on none of the last 262,144 training tokens, or of all so far",
  },
  l0: { title: "Active experts", segment: "L0", scale: "linear", digits: 2, note: "mean per token" },
  stable_rank: {
    title: "Stable rank",
    segment: "Rank",
    scale: "linear",
    digits: 2,
    note: "mean of up to 8 experts’ matrices, measured at checkpoints",
  },
  tokens_per_second: {
    title: "Throughput",
    segment: "Throughput",
    scale: "linear",
    digits: 0,
    note: "tokens per second",
  },
};

export interface Curve {
  readonly tokens: readonly number[];
  readonly values: readonly number[];
}

/** The values of a name. Ranks are logged less often than the other metrics. */
export function curveOf(metrics: readonly MetricPoint[], name: CurveName): Curve {
  const measured = metrics.filter((metric) => typeof metric[name] === "number");
  return { tokens: measured.map(({ tokens }) => tokens), values: measured.map((metric) => Number(metric[name])) };
}

/** Moving average over the last tenth of the points, at most 20, so that the steep early fall stays visible. */
export function smooth(values: readonly number[]): readonly number[] {
  return values.map((_, i) => {
    const window = values.slice(Math.max(0, i + 1 - Math.max(1, Math.min(20, Math.ceil(i / 10)))), i + 1);
    return window.reduce((sum, value) => sum + value, 0) / window.length;
  });
}

const MILLION = 1e6;

function line(curve: Curve, values: readonly number[], role: string, name: string, digits: number) {
  return {
    type: "scatter",
    mode: "lines",
    name,
    meta: { role },
    x: curve.tokens.map((tokens) => tokens / MILLION),
    y: values,
    hovertemplate: `%{y:.${digits}f} at %{x:.2f} M tokens<extra>${name}</extra>`,
  };
}

interface CurveFigure {
  readonly name: CurveName;
  readonly curve: Curve;
  readonly run: string;
  readonly axisEnd: number;
  /** Another run's curve to compare with. */
  readonly other: { readonly run: string; readonly curve: Curve } | null;
  /** Value on held-out text, if it was measured. */
  readonly heldOut: number | null;
}

interface End {
  readonly tokens: number;
  readonly value: number;
}

/** The last logged point that the axis shows. Tables have the same value, not that of the moving average. */
function endOf({ tokens, values }: Curve, axisEnd: number): End | null {
  const i = tokens.findLastIndex((at) => at <= axisEnd);
  const [at, value] = [tokens[i], values[i]];
  return at === undefined || value === undefined ? null : { tokens: at, value };
}

/** A marker with its value and, beside another, its run; above the line if it is the higher of two, else below. */
function endMarker({ tokens, value }: End, other: End | null, role: string, run: string, digits: number) {
  const place = other === null ? "middle" : value >= other.value ? "top" : "bottom";
  return {
    type: "scatter",
    mode: "markers+text",
    meta: { role },
    x: [tokens / MILLION, tokens / MILLION],
    y: [value, value],
    text: [value.toFixed(digits), other === null ? "" : run],
    textposition: [`${place} right`, `${place} left`],
    marker: { size: 6 },
    cliponaxis: false,
    hoverinfo: "skip",
  };
}

/** The error on held-out text, which is not the one that the curve ends with. */
function heldOutLine(value: number, axisEnd: number) {
  return {
    type: "scatter",
    mode: "lines+text",
    name: "held-out text",
    meta: { role: "reference" },
    // Its text does not touch the axis.
    x: [(0.01 * axisEnd) / MILLION, axisEnd / MILLION],
    y: [value, value],
    text: [`held-out ${value.toFixed(4)}`, ""],
    textposition: "top right",
    line: { dash: "dot" },
    hoverinfo: "skip",
  };
}

export function curveFigure({ name, curve, run, axisEnd, other, heldOut }: CurveFigure): FigureData {
  const { scale, digits, title } = CURVE_LABELS[name];
  const smoothed = smooth(curve.values);
  const end = endOf(curve, axisEnd);
  const otherEnd = other === null ? null : endOf(other.curve, axisEnd);
  return {
    name: "training",
    title: `${title} of ${run}`,
    drawn: curve.values.length,
    total: curve.values.length,
    data: [
      ...(heldOut === null ? [] : [heldOutLine(heldOut, axisEnd)]),
      ...(other === null
        ? []
        : [line(other.curve, smooth(other.curve.values), "other", `${other.run}, moving average`, digits)]),
      line(curve, curve.values, "raw", `${run}, as logged`, digits),
      line(curve, smoothed, "this-run", `${run}, moving average`, digits),
      ...(otherEnd === null ? [] : [endMarker(otherEnd, end, "other", other?.run ?? "", digits)]),
      ...(end === null ? [] : [endMarker(end, otherEnd, "this-run", run, digits)]),
    ],
    layout: {
      meta: { columns: { y: name === "tokens_per_second" ? "tokens per second" : title } },
      margin: { l: 48, r: 52, t: 12, b: 38 },
      xaxis: { title: { text: "training tokens, millions" }, range: [0, axisEnd / MILLION], showgrid: false },
      yaxis: { type: scale, ...(scale === "log" ? logTicks(smoothed) : { rangemode: "tozero" }) },
    },
  };
}

const HEIGHT = 430;

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

export function Curves({ detail: { run, metrics }, curve, compare, axisEnd, onCurve, children }: CurvesProps) {
  const { data: compared, error, refetch } = useQuery({ ...runQuery(compare ?? ""), enabled: compare !== null });
  const labels = CURVE_LABELS[curve];
  const figure = useMemo(() => {
    const other = compared === undefined ? null : { run: compared.run.name, curve: curveOf(compared.metrics, curve) };
    const heldOut = curve === "normalized_mse" ? (run.held_out?.normalized_mse ?? null) : null;
    return curveFigure({ name: curve, curve: curveOf(metrics, curve), run: run.name, axisEnd, other, heldOut });
  }, [metrics, compared, curve, axisEnd, run]);
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (figure.drawn === 0) return <NoCurve run={run} />;
  const isShown = (name: CurveName) => name === curve || curveOf(metrics, name).values.length > 0;
  const shown = CURVES.filter(isShown).map((name) => ({ value: name, label: CURVE_LABELS[name].segment }));
  const isMissing = compared !== undefined && curveOf(compared.metrics, curve).values.length === 0;
  return (
    <section className="pane">
      <FigureView
        figure={figure}
        title={labels.title}
        note={`${labels.note}; line: moving average${isMissing ? `; not measured for ${compared.run.name}` : ""}`}
        height={HEIGHT}
        controls={
          <>
            <SegmentedControl label="Curve" value={curve} onChange={onCurve} segments={shown} />
            {children}
          </>
        }
      />
    </section>
  );
}

/** One training curve as a figure of this page: the server's points, newer ones that came live, and a smooth line. */

import type { FigureData, MetricPoint } from "@/api/types";
import { logTicks } from "@/components/figure/axes";
import { readTrace } from "@/components/figure/figure-data";

import type { CurveName } from "./run-params";

export interface CurveWords {
  readonly title: string;
  readonly segment: string;
  readonly scale: "log" | "linear";
  readonly digits: number;
  readonly note: string;
}

export const CURVE_WORDS: Readonly<Record<CurveName, CurveWords>> = {
  normalised_mse: { title: "Normalised MSE", segment: "Loss", scale: "log", digits: 4, note: "log scale" },
  dead_share: {
    title: "Dead share",
    segment: "Dead share",
    scale: "linear",
    digits: 4,
    note: "of experts, over the last logging interval",
  },
  l0: { title: "Active experts", segment: "L0", scale: "linear", digits: 2, note: "mean per token" },
  stable_rank: {
    title: "Stable rank",
    segment: "Rank",
    scale: "linear",
    digits: 2,
    note: "of a few experts’ matrices, at checkpoints",
  },
  tokens_per_second: { title: "Rate", segment: "Rate", scale: "linear", digits: 0, note: "tokens per second" },
};

export interface Curve {
  readonly tokens: readonly number[];
  readonly values: readonly number[];
}

/** The server's curve of this name, and what was measured after it. */
export function curveOf(figure: FigureData | undefined, metrics: readonly MetricPoint[], name: CurveName): Curve {
  const trace = figure?.data.map(readTrace).find((candidate) => candidate.role === name);
  const drawn =
    trace === undefined ? { tokens: [], values: [] } : { tokens: trace.x.map(Number), values: trace.y.map(Number) };
  const last = drawn.tokens.at(-1) ?? -1;
  // Ranks are measured more rarely than the rest.
  const newer = metrics.flatMap((metric) => {
    const value = metric[name];
    return metric.tokens > last && typeof value === "number" ? [{ tokens: metric.tokens, value }] : [];
  });
  return {
    tokens: [...drawn.tokens, ...newer.map(({ tokens }) => tokens)],
    values: [...drawn.values, ...newer.map(({ value }) => value)],
  };
}

/** Moving average that follows the early fall: each point weighs its last tenth, at most twenty points. */
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
  readonly wanted: number;
  /** Another run's curve. */
  readonly other: { readonly run: string; readonly curve: Curve } | null;
}

function endMark(tokens: number, value: number, digits: number) {
  return {
    type: "scatter",
    mode: "markers+text",
    meta: { role: "this-run" },
    x: [tokens / MILLION],
    y: [value],
    text: [value.toFixed(digits)],
    textposition: "top center",
    marker: { size: 7 },
    cliponaxis: false,
    hoverinfo: "skip",
  };
}

/** Name of the other run where its line leaves the drawing. */
function otherName(other: CurveFigure["other"], wanted: number, scale: "log" | "linear") {
  const shown = other?.curve.tokens.findLastIndex((tokens) => tokens <= wanted) ?? -1;
  const value = other === null || shown < 0 ? undefined : smooth(other.curve.values)[shown];
  if (other === null || value === undefined) return [];
  const x = (other.curve.tokens[shown] ?? 0) / MILLION;
  const y = scale === "log" ? Math.log10(value) : value;
  const xanchor = x > (0.8 * wanted) / MILLION ? "right" : "left";
  return [{ text: other.run, x, y, xanchor, yanchor: "bottom", yshift: 3, showarrow: false }];
}

export function curveFigure({ name, curve, run, wanted, other }: CurveFigure): FigureData {
  const { scale, digits, title } = CURVE_WORDS[name];
  const smoothed = smooth(curve.values);
  const last = smoothed.at(-1);
  return {
    name: "training",
    title: `${title} of ${run}`,
    drawn: curve.values.length,
    total: curve.values.length,
    data: [
      ...(other === null ? [] : [line(other.curve, smooth(other.curve.values), "other", other.run, digits)]),
      line(curve, curve.values, "raw", `${run}, each step`, digits),
      line(curve, smoothed, "this-run", run, digits),
      ...(last === undefined ? [] : [endMark(curve.tokens.at(-1) ?? 0, last, digits)]),
    ],
    layout: {
      annotations: otherName(other, wanted, scale),
      margin: { l: 48, r: 24, t: 12, b: 38 },
      xaxis: { title: { text: "tokens, millions" }, range: [0, wanted / MILLION], showgrid: false },
      yaxis: { type: scale, ...(scale === "log" ? logTicks(smoothed) : { rangemode: "tozero" }) },
    },
  };
}

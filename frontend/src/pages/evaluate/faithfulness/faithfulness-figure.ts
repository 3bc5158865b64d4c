/** Styles the server's figure of loss increases: the current run has the accent colour, and the axis plain numbers. */

import type { FigureData } from "@/api/types";
import { logRange, logTicks } from "@/components/plots/axes/axes";
import { withLegend } from "@/components/plots/axes/legend";
import { readTrace } from "@/components/plots/figure/figure-data";

type RawTrace = FigureData["data"][number];

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** The points of a trace whose run satisfies `keep`, with their error bars. */
function pointsOf(raw: RawTrace, keep: (run: unknown) => boolean): RawTrace {
  const runs = list(raw.customdata);
  const kept = (values: unknown) => list(values).filter((_, i) => keep(runs[i]));
  const bars = (raw.error_x ?? {}) as Readonly<Record<string, unknown>>;
  return {
    ...raw,
    x: kept(raw.x),
    y: kept(raw.y),
    error_x: { ...bars, array: kept(bars.array), arrayminus: kept(bars.arrayminus) },
  };
}

/** The points of a trace and the lower ends of their intervals. */
function extentOf(raw: RawTrace): readonly number[] {
  const x = readTrace(raw).x.map(Number);
  const { arrayminus } = (raw.error_x ?? {}) as Readonly<Record<string, unknown>>;
  return [...x, ...list(arrayminus).flatMap((minus, i) => (x[i] ?? 0) - Number(minus))].filter((value) => value > 0);
}

/** The routing shares of all runs and their intervals, instead of the range from 0 to 1. */
export function routingFigure(figure: FigureData): FigureData {
  const xaxis = { ...(figure.layout.xaxis ?? {}), range: undefined, autorange: true };
  return withLegend({ ...figure, layout: { ...figure.layout, xaxis } });
}

export function faithfulnessFigure(figure: FigureData, run: string): FigureData {
  const values = figure.data.flatMap(extentOf);
  const data = figure.data.flatMap((raw) => {
    if (readTrace(raw).role !== "this-run") return [raw];
    const others = pointsOf(raw, (other) => other !== run);
    return [
      { ...pointsOf(raw, (other) => other === run), name: run },
      ...(list(others.x).length === 0 ? [] : [{ ...others, name: "other runs", meta: { role: "other" } }]),
    ];
  });
  const xaxis = (figure.layout.xaxis ?? {}) as Readonly<Record<string, unknown>>;
  return withLegend({
    ...figure,
    data,
    layout: {
      ...figure.layout,
      xaxis: {
        ...xaxis,
        title: { text: "Loss increase, nats per token, log scale" },
        range: logRange(values),
        ...logTicks(values),
      },
    },
  });
}

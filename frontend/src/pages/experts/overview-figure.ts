/** The server's scatter of experts, made ready for this page: usage in percent, labelled experts by name, selection. */

import type { FigureData } from "@/api/types";
import { readTrace } from "@/components/figure/figure-data";
import { cornerTitle, USAGE_AXIS } from "@/components/figure/axes";

export interface OverviewPoint {
  readonly expert: number;
  readonly label: string | null;
  readonly usage: number;
  readonly mean: number;
}

/** The points of the figure; `customdata` holds the expert and its label. */
export function overviewPoints(figure: Pick<FigureData, "data">): readonly OverviewPoint[] {
  return figure.data.map(readTrace).flatMap((trace) =>
    trace.customdata.map((custom, i) => {
      const [expert, label] = Array.isArray(custom) ? (custom as unknown[]) : [custom];
      return {
        expert: Number(expert),
        label: typeof label === "string" ? label : null,
        // The map's own places say something else; its points carry both behind the label.
        usage: Number(Array.isArray(custom) ? (custom[2] ?? trace.x[i]) : trace.x[i]),
        mean: Number(Array.isArray(custom) ? (custom[3] ?? trace.y[i]) : trace.y[i]),
      };
    }),
  );
}

/** About as many powers of ten as a label is wide. */
const LABEL_DECADES = 1.7;

/** At most `count` labelled points, none too near another: names must not lie on each other. */
export function namedPoints(points: readonly OverviewPoint[], count: number): readonly OverviewPoint[] {
  const top = Math.max(...points.map((point) => point.mean), 1e-9);
  const kept: OverviewPoint[] = [];
  const candidates = points.filter((point) => point.label !== null && point.usage > 0);
  for (const point of candidates.toSorted((a, b) => b.mean - a.mean)) {
    const isFree = kept.every(
      (other) =>
        Math.abs(Math.log10(other.usage / point.usage)) > LABEL_DECADES ||
        Math.abs(other.mean - point.mean) / top > 0.08,
    );
    if (isFree && kept.length < count) kept.push(point);
  }
  return kept;
}

export function overviewFigure(figure: FigureData, names: number): FigureData {
  const points = overviewPoints(figure);
  const named = namedPoints(points, names);
  const lowest = Math.min(1, ...points.filter((point) => point.usage > 0).map((point) => point.usage));
  const labels = {
    type: "scatter",
    mode: "markers+text",
    meta: { role: "labelled" },
    x: named.map((point) => point.usage),
    y: named.map((point) => point.mean),
    text: named.map((point) => point.label),
    customdata: named.map((point) => [point.expert, point.label]),
    textposition: named.map((point) => (point.usage > 0.02 ? "middle left" : "middle right")),
    marker: { size: 6 },
    hoverinfo: "skip",
    cliponaxis: false,
  };
  return {
    ...figure,
    data: [
      ...figure.data.map((trace) => ({
        ...trace,
        marker: { size: 3.5 },
        text: points.map((point) => point.label ?? "no label yet"),
        hovertemplate: "%{customdata[0]} %{text}<br>usage %{x:.3%}, mean coefficient %{y:.2f}<extra></extra>",
      })),
      labels,
    ],
    layout: {
      ...figure.layout,
      margin: { l: 30, r: 14, t: 8, b: 38 },
      xaxis: {
        ...USAGE_AXIS,
        range: [Math.floor(Math.log10(lowest) * 2) / 2, 0.06],
      },
      yaxis: { rangemode: "tozero", nticks: 6 },
      annotations: [cornerTitle("Mean coefficient when active")],
    },
  };
}

/** The map of what experts do: only distances mean something, so its axes have no numbers. */
export function mapFigure(figure: FigureData): FigureData {
  const points = overviewPoints(figure);
  const meta = figure.data[0]?.meta as { readonly variance?: number } | undefined;
  const bare = { showticklabels: false, showgrid: false };
  return {
    ...figure,
    data: figure.data.map((trace) => ({
      ...trace,
      marker: { size: 3.5 },
      text: points.map((point) => point.label ?? "no label yet"),
      hovertemplate: "%{customdata[0]} %{text}<extra></extra>",
    })),
    layout: {
      ...figure.layout,
      margin: { l: 14, r: 14, t: 8, b: 14 },
      xaxis: bare,
      yaxis: bare,
      annotations: [
        cornerTitle(
          `Near: alike in what they write; the plane holds ${(100 * (meta?.variance ?? 0)).toFixed(0)} % of it`,
        ),
      ],
    },
  };
}

export interface UsageRange {
  readonly min_usage: number;
  readonly max_usage: number;
}

/** The usage that a selection spans, rounded outward to two digits, so that every selected expert stays in. */
export function usageRange(points: readonly OverviewPoint[]): UsageRange | null {
  if (points.length === 0) return null;
  const usages = points.map((point) => point.usage);
  const outward = (value: number, round: (scaled: number) => number) => {
    const unit = 10 ** (Math.floor(Math.log10(value)) - 1);
    return Math.min(1, Number((round(value / unit) * unit).toPrecision(2)));
  };
  return { min_usage: outward(Math.min(...usages), Math.floor), max_usage: outward(Math.max(...usages), Math.ceil) };
}

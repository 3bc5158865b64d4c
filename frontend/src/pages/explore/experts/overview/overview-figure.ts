/** Prepares the server's scatter plot of experts: density in percent, names of labelled experts, selection. */

import type { FigureData } from "@/api/types";
import { cornerTitle, DENSITY_AXIS } from "@/components/plots/axes/axes";
import { readTrace } from "@/components/plots/figure/figure-data";

export interface OverviewPoint {
  readonly expert: number;
  readonly label: string | null;
  readonly density: number;
  readonly mean: number;
}

/** Points of the figure; `customdata` contains the expert and its label. */
export function overviewPoints(figure: Pick<FigureData, "data">): readonly OverviewPoint[] {
  return figure.data.map(readTrace).flatMap((trace) =>
    trace.customdata.map((custom, i) => {
      const [expert, label] = Array.isArray(custom) ? (custom as unknown[]) : [custom];
      return {
        expert: Number(expert),
        label: typeof label === "string" ? label : null,
        // In the similarity map x and y are something else, so its customdata also contains density and mean.
        density: Number(Array.isArray(custom) ? (custom[2] ?? trace.x[i]) : trace.x[i]),
        mean: Number(Array.isArray(custom) ? (custom[3] ?? trace.y[i]) : trace.y[i]),
      };
    }),
  );
}

/** Approximate width of a label in powers of ten. */
const LABEL_DECADES = 1.7;
/** Longest name beside a point, in characters, so that half of a narrow figure holds it. */
const LABEL_CHARACTERS = 30;

/** The first clause of a label, shortened at a word. The full label is in the point's tooltip. */
export function shortLabel(label: string): string {
  const clause = label.split(";")[0] ?? label;
  if (clause.length <= LABEL_CHARACTERS) return clause;
  const cut = clause.slice(0, LABEL_CHARACTERS);
  return `${cut.slice(0, cut.lastIndexOf(" ") + 1 || undefined).trimEnd()}…`;
}

/** At most `count` labelled points, far enough apart that their names do not overlap. */
export function namedPoints(points: readonly OverviewPoint[], count: number): readonly OverviewPoint[] {
  const maxMean = Math.max(...points.map((point) => point.mean), 1e-9);
  const chosen: OverviewPoint[] = [];
  const candidates = points.filter((point) => point.label !== null && point.density > 0);
  for (const point of candidates.toSorted((a, b) => b.mean - a.mean)) {
    const hasSpace = chosen.every(
      (other) =>
        Math.abs(Math.log10(other.density / point.density)) > LABEL_DECADES ||
        Math.abs(other.mean - point.mean) / maxMean > 0.08,
    );
    if (hasSpace && chosen.length < count) chosen.push(point);
  }
  return chosen;
}

export function overviewFigure(figure: FigureData, maxLabels: number): FigureData {
  const points = overviewPoints(figure);
  const named = namedPoints(points, maxLabels);
  const lowest = Math.min(1, ...points.filter((point) => point.density > 0).map((point) => point.density));
  const range = [Math.floor(Math.log10(lowest) * 2) / 2, 0.06] as const;
  const middle = (range[0] + range[1]) / 2;
  const labels = {
    type: "scatter",
    mode: "markers+text",
    meta: { role: "labelled" },
    x: named.map((point) => point.density),
    y: named.map((point) => point.mean),
    text: named.map((point) => shortLabel(point.label ?? "")),
    customdata: named.map((point) => [point.expert, point.label]),
    textposition: named.map((point) => (Math.log10(point.density) > middle ? "middle left" : "middle right")),
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
        hovertemplate: "%{customdata[0]} %{text}<br>density %{x:.3%}, mean activation %{y:.2f}<extra></extra>",
      })),
      labels,
    ],
    layout: {
      ...figure.layout,
      margin: { l: 30, r: 14, t: 8, b: 38 },
      xaxis: { ...DENSITY_AXIS, range: [...range] },
      yaxis: { rangemode: "tozero", nticks: 6 },
      annotations: [cornerTitle("Mean activation when active")],
    },
  };
}

/** The similarity map. Only distances are meaningful, so its axes have no numbers. */
export function mapFigure(figure: FigureData): FigureData {
  const points = overviewPoints(figure);
  const meta = figure.data[0]?.meta as { readonly variance?: number } | undefined;
  const hiddenAxis = { showticklabels: false, showgrid: false };
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
      xaxis: hiddenAxis,
      yaxis: hiddenAxis,
      annotations: [
        cornerTitle(
          `Distance: output similarity; the two axes explain ${(100 * (meta?.variance ?? 0)).toFixed(0)} % of the variance`,
        ),
      ],
    },
  };
}

export interface DensityRange {
  readonly min_density: number;
  readonly max_density: number;
}

/** Density range of a selection, rounded outwards to two digits so that it includes every selected expert. */
export function densityRange(points: readonly OverviewPoint[]): DensityRange | null {
  if (points.length === 0) return null;
  const densities = points.map((point) => point.density);
  const roundOutwards = (value: number, round: (scaled: number) => number) => {
    const unit = 10 ** (Math.floor(Math.log10(value)) - 1);
    return Math.min(1, Number((round(value / unit) * unit).toPrecision(2)));
  };
  return {
    min_density: roundOutwards(Math.min(...densities), Math.floor),
    max_density: roundOutwards(Math.max(...densities), Math.ceil),
  };
}

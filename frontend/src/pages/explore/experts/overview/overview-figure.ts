/** Prepares the server's scatter plot of experts: density in percent, names of labelled experts, selection. */

import type { FigureData } from "@/api/types";
import { cornerTitle, DENSITY_AXIS, inPercent } from "@/components/plots/axes/axes";
import { type ColumnNames, readTrace } from "@/components/plots/figure/figure-data";

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
        density: Number(trace.x[i]),
        mean: Number(trace.y[i]),
      };
    }),
  );
}

/** Number and longest length of the names beside points, so that a third of the figure holds them. */
export interface Names {
  readonly count: number;
  readonly characters: number;
}

/** The first clause of a label, shortened at a word. The full label is in the point's tooltip. */
export function shortLabel(label: string, characters: number): string {
  const clause = label.split(";")[0] ?? label;
  if (clause.length <= characters) return clause;
  const cut = clause.slice(0, characters);
  return `${cut.slice(0, cut.lastIndexOf(" ") + 1 || undefined).trimEnd()}…`;
}

/** Start of the names on the density axis, as a share of its length: right of it, points are sparse. */
const NAME_START = 0.62;
/** Distance of two names, as a share of the largest mean activation. */
const NAME_STEP = 0.11;

/** A name in the upper right corner of the figure, with a line to its point. `x` is in powers of ten. */
function nameAnnotation(name: string, point: OverviewPoint, x: number, y: number): Readonly<Record<string, unknown>> {
  return {
    text: name,
    name: "name",
    captureevents: true,
    customdata: [point.expert, point.label],
    x: Math.log10(100 * point.density),
    y: point.mean,
    axref: "x",
    ayref: "y",
    ax: x,
    ay: y,
    xanchor: "left",
    showarrow: true,
    arrowhead: 0,
    arrowwidth: 1,
    standoff: 4,
  };
}

/** The `count` labelled points with the strongest mean activation. */
export function namedPoints(points: readonly OverviewPoint[], count: number): readonly OverviewPoint[] {
  const candidates = points.filter((point) => point.label !== null && point.density > 0);
  const strongest = candidates.toSorted((a, b) => b.mean - a.mean).slice(0, count);
  // The lines from the stacked names to the points cross less often if the leftmost point has the highest name.
  return strongest.toSorted((a, b) => a.density - b.density);
}

const COLUMNS = { series: "", point: ["expert"], y: "mean activation when active" } satisfies ColumnNames;

export function overviewFigure(figure: FigureData, names: Names): FigureData {
  const points = overviewPoints(figure);
  const named = namedPoints(points, names.count);
  const lowest = Math.min(1, ...points.filter((point) => point.density > 0).map((point) => point.density));
  const range = [Math.floor(Math.log10(100 * lowest) * 2) / 2, 2.06] as const;
  const highest = Math.max(...points.map((point) => point.mean));
  const labels = {
    type: "scatter",
    mode: "markers",
    meta: { role: "labelled" },
    x: named.map((point) => 100 * point.density),
    y: named.map((point) => point.mean),
    customdata: named.map((point) => [point.expert, point.label]),
    marker: { size: 6 },
    hoverinfo: "skip",
    cliponaxis: false,
  };
  return {
    ...figure,
    data: [
      ...figure.data.map((trace) => ({
        ...trace,
        x: inPercent(trace.x),
        marker: { size: 3.5 },
        hovertemplate: "%{customdata[0]} %{text}<br>density %{x:.3f} %, mean activation %{y:.2f}<extra></extra>",
      })),
      labels,
    ],
    layout: {
      ...figure.layout,
      meta: { columns: COLUMNS },
      margin: { l: 30, r: 14, t: 8, b: 38 },
      xaxis: { ...DENSITY_AXIS, range: [...range] },
      yaxis: { rangemode: "tozero", nticks: 6 },
      annotations: [
        cornerTitle("Mean activation when active"),
        ...named.map((point, i) =>
          nameAnnotation(
            shortLabel(point.label ?? "", names.characters),
            point,
            range[0] + NAME_START * (range[1] - range[0]),
            highest * (1 - NAME_STEP * i),
          ),
        ),
      ],
    },
  };
}

/** The figure with the points of `experts` selected, as the lasso does. */
export function withSelection(figure: FigureData, experts: ReadonlySet<number>): FigureData {
  if (experts.size === 0) return figure;
  const select = (trace: FigureData["data"][number]) => {
    const { role, customdata } = readTrace(trace);
    const isSelected = (custom: unknown) => experts.has(Number(Array.isArray(custom) ? custom[0] : custom));
    const selectedpoints = customdata.flatMap((custom, i) => (isSelected(custom) ? [i] : []));
    return role === "expert" ? { ...trace, selectedpoints } : trace;
  };
  return { ...figure, data: figure.data.map(select) };
}

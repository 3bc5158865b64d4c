/** Styles the server's figure of loss increases: the current run has the accent colour, and the axis plain numbers. */

import type { FigureData } from "@/api/types";
import { logRange, logTicks } from "@/components/plots/axes/axes";
import { withLegend } from "@/components/plots/axes/legend";
import { hoverLines } from "@/components/plots/figure/escape-markup";
import { readTrace } from "@/components/plots/figure/figure-data";
import { formatFixed } from "@/lib/text/format";

type RawTrace = FigureData["data"][number];

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** The points of a trace at these indices, with their error bars. */
function pointsAt(raw: RawTrace, indices: readonly number[]): RawTrace {
  const taken = (values: unknown) => indices.map((i) => list(values)[i]);
  const { error_x: bars } = raw as { readonly error_x?: Readonly<Record<string, unknown>> | null };
  return {
    ...raw,
    x: taken(raw.x),
    y: taken(raw.y),
    customdata: taken(raw.customdata),
    ...(Array.isArray(raw.hovertemplate) && { hovertemplate: taken(raw.hovertemplate) }),
    ...(bars && { error_x: { ...bars, array: taken(bars.array), arrayminus: taken(bars.arrayminus) } }),
  };
}

/** The points of a trace whose run satisfies `keep`. */
const pointsOf = (raw: RawTrace, keep: (run: unknown) => boolean) =>
  pointsAt(
    raw,
    list(raw.customdata).flatMap((run, i) => (keep(run) ? [i] : [])),
  );

/** The points of a trace in the order of the rows. */
function inOrder(raw: RawTrace, rows: readonly unknown[]): RawTrace {
  const labels = list(raw.y);
  return pointsAt(
    raw,
    rows.flatMap((row) => (labels.includes(row) ? [labels.indexOf(row)] : [])),
  );
}

/** A tip per point: the row, and what its mark measures, with the interval. */
function withTips(raw: RawTrace, measure: string): RawTrace {
  const { x, y, bars } = readTrace(raw);
  const tips = x.map(Number).map((value, i) => {
    const ends = [value - Number(bars?.low[i]), value + Number(bars?.high[i])].map((end) => formatFixed(end, 4));
    const interval = bars === null ? "" : ` (${ends.join(" to ")})`;
    return hoverLines([String(y[i]), `${measure}: ${formatFixed(value, 4)}${interval} nats per token`]);
  });
  return { ...raw, hovertemplate: tips };
}

/** The points of a trace and the lower ends of their intervals. */
function extentOf(raw: RawTrace): readonly number[] {
  const x = readTrace(raw).x.map(Number);
  const { arrayminus } = (raw.error_x ?? {}) as Readonly<Record<string, unknown>>;
  return [...x, ...list(arrayminus).flatMap((minus, i) => (x[i] ?? 0) - Number(minus))].filter((value) => value > 0);
}

interface LayerOfRun {
  readonly name: string;
  readonly layer: number;
  readonly k: number;
}

const K_OF_LABEL = / at K (\d+)/;

interface Labelling {
  readonly runs: readonly LayerOfRun[];
  /** A layer that labels leave out, for narrow screens; undefined for none. */
  readonly impliedLayer?: number | undefined;
}

/** The names of a trace's points, with the layer of each run, and K if the run was evaluated at several. */
function withLayers(raw: RawTrace, { runs, impliedLayer }: Labelling): RawTrace {
  const names = list(raw.customdata);
  const texts = list(raw.y).map(String);
  const hasSeveral = (name: unknown) => texts.some((text, i) => names[i] === name && K_OF_LABEL.test(text));
  const labels = texts.map((text, i) => {
    const run = runs.find(({ name }) => name === names[i]);
    if (run === undefined) return text;
    const k = hasSeveral(run.name) && !K_OF_LABEL.test(text) ? ` at K ${run.k}` : "";
    return run.layer === impliedLayer ? `${text}${k}` : `${text}${k}, layer ${run.layer}`;
  });
  return { ...raw, y: labels };
}

/** Rows of the run first, then those of the same layer, then the others by layer; those of a run by K. */
function rowOrder(named: readonly RawTrace[], run: string, runs: readonly LayerOfRun[]): readonly unknown[] {
  const [first] = named;
  if (first === undefined) return [];
  const names = list(first.customdata);
  const layerOf = (name: unknown) => runs.find((one) => one.name === name)?.layer ?? Infinity;
  const rank = (name: unknown) => (name === run ? -2 : layerOf(name) === layerOf(run) ? -1 : layerOf(name));
  return list(first.y)
    .map(String)
    .map((label, i) => ({
      label,
      name: String(names[i]),
      rank: rank(names[i]),
      k: Number(K_OF_LABEL.exec(label)?.[1]),
    }))
    .sort((a, b) => a.rank - b.rank || a.name.localeCompare(b.name, "en") || a.k - b.k)
    .map(({ label }) => label);
}

/** The loss increases of the current run and of the others, and the two references. */
function traces(named: readonly RawTrace[], rows: readonly unknown[], run: string): readonly RawTrace[] {
  return named.flatMap((unordered) => {
    const raw = inOrder(unordered, rows);
    const { role, name } = readTrace(raw);
    if (role !== "this-run") return [withTips(raw, name)];
    const withTip = withTips(raw, "loss increase");
    const own = { ...pointsOf(withTip, (other) => other === run), name: run };
    const others = pointsOf(withTip, (other) => other !== run);
    return list(others.x).length === 0 ? [own] : [own, { ...others, name: "other runs", meta: { role: "other" } }];
  });
}

/** A row on a phone has its label above it, inside the figure. */
const NARROW_ROW = 38;
const ROW = 22;
const MARGINS = 150;
const SMALLEST_HEIGHT = 380;

export function faithfulnessHeight({ data }: Pick<FigureData, "data">, isNarrow: boolean): number {
  const rows = list(data[0]?.y).length;
  return isNarrow ? MARGINS + NARROW_ROW * rows : Math.max(SMALLEST_HEIGHT, MARGINS + ROW * rows);
}

/** Labels above the rows, so that the plot keeps the width of a phone. */
const labelAbove = (row: unknown) => ({
  text: row,
  xref: "paper",
  x: 0,
  xanchor: "left",
  y: row,
  yanchor: "bottom",
  yshift: 5,
  showarrow: false,
});

/** Every row has a label. */
const rowAxis = (rows: readonly unknown[], isNarrow: boolean) => ({
  ...(isNarrow ? { showticklabels: false, ticks: "" } : { tickmode: "linear", dtick: 1 }),
  categoryorder: "array",
  categoryarray: rows,
});

/** A legend, and on a phone no margin for labels beside the plot. */
function withMargins(figure: FigureData, isNarrow: boolean): FigureData {
  const { layout, ...rest } = withLegend(figure);
  return { ...rest, layout: isNarrow ? { ...layout, margin: { l: 4, r: 8, t: 12, b: 44 } } : layout };
}

export function faithfulnessFigure(
  figure: FigureData,
  run: string,
  runs: readonly LayerOfRun[],
  isNarrow = false,
): FigureData {
  const values = figure.data.flatMap(extentOf);
  const impliedLayer = isNarrow ? runs.find(({ name }) => name === run)?.layer : undefined;
  const named = figure.data.map((raw) => withLayers(raw, { runs, impliedLayer }));
  const rows = rowOrder(named, run, runs);
  const { xaxis, yaxis } = figure.layout as Readonly<Record<string, object | undefined>>;
  const layout = {
    ...figure.layout,
    meta: { columns: { point: [], y: "evaluation", x: "nats per token" } },
    // The server sets marks of one row side by side, which looks like rows that are off their names.
    scattermode: "overlay",
    annotations: isNarrow ? rows.map(labelAbove) : [],
    yaxis: { ...yaxis, ...rowAxis(rows, isNarrow) },
    xaxis: {
      ...xaxis,
      title: { text: "nats per token, log scale" },
      tickangle: 0,
      range: logRange(values),
      ...logTicks(values),
    },
  };
  return withMargins({ ...figure, data: [...traces(named, rows, run)], layout }, isNarrow);
}

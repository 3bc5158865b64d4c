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
    customdata: kept(runs),
    error_x: { ...bars, array: kept(bars.array), arrayminus: kept(bars.arrayminus) },
  };
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

export function faithfulnessFigure(
  figure: FigureData,
  run: string,
  runs: readonly LayerOfRun[],
  isNarrow = false,
): FigureData {
  const values = figure.data.flatMap(extentOf);
  const impliedLayer = isNarrow ? runs.find(({ name }) => name === run)?.layer : undefined;
  const named = figure.data.map((raw) => withLayers(raw, { runs, impliedLayer }));
  const data = named.flatMap((raw) => {
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
      meta: { columns: { point: ["run"], x: "loss increase, nats per token", y: "evaluation" } },
      // The server sets marks of one row side by side, which looks like rows that are off their names.
      scattermode: "overlay",
      yaxis: {
        ...(figure.layout.yaxis ?? {}),
        categoryorder: "array",
        categoryarray: rowOrder(named, run, runs),
      },
      xaxis: {
        ...xaxis,
        title: { text: "nats per token, log scale" },
        range: logRange(values),
        ...logTicks(values),
      },
    },
  });
}

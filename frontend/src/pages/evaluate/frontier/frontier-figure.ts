/**
 * Styles the server's frontier: the current run's method has the accent colour, and each line is labelled at its end.
 */

import type { FigureData } from "@/api/types";
import { cornerTitle, logRange, logTicks } from "@/components/plots/axes/axes";
import { readTrace, type Trace } from "@/components/plots/figure/figure-data";

const DASHES = ["solid", "dash", "dot", "dashdot"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond"];

function containsRun(trace: Trace, run: string | null): boolean {
  return trace.customdata.some((custom) => (Array.isArray(custom) ? custom[0] === run : custom === run));
}

/** A point may belong to several seeds; its customdata then contains their names, separated by commas. */
function belongsToRun(trace: Trace, run: string | null): boolean {
  const names = trace.customdata.flatMap((custom) => (Array.isArray(custom) ? String(custom[0]).split(", ") : []));
  return run !== null && names.includes(run);
}

/** Highlights the line that contains the current run. */
export function highlightRun(figure: FigureData, run: string | null): FigureData {
  return {
    ...figure,
    data: figure.data.map((raw) => (belongsToRun(readTrace(raw), run) ? { ...raw, meta: { role: "this-run" } } : raw)),
  };
}

/** Dashes and symbols distinguish methods in addition to colour. */
export function frontierFigure(figure: FigureData, run: string | null): FigureData {
  const traces = figure.data.map(readTrace);
  const own = traces.findIndex((trace) => containsRun(trace, run));
  const errors = traces.flatMap((trace) => trace.y.map(Number));
  const ks = [...new Set(traces.flatMap((trace) => trace.x.map(Number)))].sort((a, b) => a - b);
  const styled = figure.data.map((raw, i) => ({
    ...raw,
    meta: { role: i === own ? "this-run" : "other" },
    line: { dash: DASHES[i % DASHES.length] },
    marker: { symbol: SYMBOLS[i % SYMBOLS.length], size: 8 },
  }));
  const ends = traces.map((trace) => ({
    text: trace.name.replace(/ of .*\//, " of "),
    x: Math.log10(Number(trace.x.at(-1) ?? 1)),
    y: Math.log10(Number(trace.y.at(-1) ?? 1)),
    xanchor: "left",
    xshift: 10,
    showarrow: false,
  }));
  return {
    ...figure,
    data: styled,
    layout: {
      ...figure.layout,
      margin: { l: 56, r: 220, t: 12, b: 44 },
      xaxis: {
        type: "log",
        title: { text: "K, maximum active experts per token" },
        tickvals: ks,
        ticktext: ks.map(String),
      },
      yaxis: { type: "log", range: logRange(errors), ...logTicks(errors) },
      annotations: [cornerTitle("Normalised MSE, log scale"), ...ends],
    },
  };
}

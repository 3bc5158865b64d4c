/** The server's frontier with the method of this page's run in the accent, each line named at its end. */

import type { FigureData } from "@/api/types";
import { cornerTitle, logRange, logTicks } from "@/components/figure/axes";
import { readTrace, type Trace } from "@/components/figure/figure-data";

const DASHES = ["solid", "dash", "dot", "dashdot"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond"];

function holds(trace: Trace, run: string | null): boolean {
  return trace.customdata.some((custom) => (Array.isArray(custom) ? custom[0] === run : custom === run));
}

/** Points are of one run, or of several seeds, whose names stand with commas between them. */
function isOf(trace: Trace, run: string | null): boolean {
  const names = trace.customdata.flatMap((custom) => (Array.isArray(custom) ? String(custom[0]).split(", ") : []));
  return run !== null && names.includes(run);
}

/** Lines over evaluations, that with this page's run in the accent. */
export function withOwnLine(figure: FigureData, run: string | null): FigureData {
  return {
    ...figure,
    data: figure.data.map((raw) => (isOf(readTrace(raw), run) ? { ...raw, meta: { role: "this-run" } } : raw)),
  };
}

/** Dash and mark tell methods apart where colour does not. */
export function frontierFigure(figure: FigureData, run: string | null): FigureData {
  const traces = figure.data.map(readTrace);
  const own = traces.findIndex((trace) => holds(trace, run));
  const errors = traces.flatMap((trace) => trace.y.map(Number));
  const ks = [...new Set(traces.flatMap((trace) => trace.x.map(Number)))].sort((a, b) => a - b);
  const named = figure.data.map((raw, i) => ({
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
    data: named,
    layout: {
      ...figure.layout,
      margin: { l: 56, r: 220, t: 12, b: 44 },
      xaxis: {
        type: "log",
        title: { text: "K, most active experts per token" },
        tickvals: ks,
        ticktext: ks.map(String),
      },
      yaxis: { type: "log", range: logRange(errors), ...logTicks(errors) },
      annotations: [cornerTitle("Normalised MSE, log scale"), ...ends],
    },
  };
}

/** Figures of one measure against K, one line per run, with intervals. */

import type { Estimate, Frontier, FrontierPoint } from "@/api/types";
import { logTicks } from "@/components/plots/axes/axes";
import { withLegend } from "@/components/plots/axes/legend";
import { hoverLines } from "@/components/plots/figure/escape-markup";
import type { ViewedFigure } from "@/components/plots/figure/figure-view";
import { formatCount } from "@/lib/text/format";

import { interval, ksOf } from "./frontier-verdict";

const DASHES = ["solid", "dash", "dot", "dashdot"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond"];
/** Distance between points of one K, in powers of ten, so that their intervals do not cover each other. */
const STEP = 0.012;
/** Margin of the axis beyond its smallest and largest K, as a factor. */
const AROUND = 1.25;

interface Measure {
  readonly name: string;
  readonly title: string;
  readonly axis: string;
  /** Heading of the column in the table. */
  readonly column: string;
  readonly of: (point: FrontierPoint) => Estimate;
}

export const MEASURES: readonly Measure[] = [
  {
    name: "loss-frontier",
    title: "Loss increase against K",
    axis: "loss increase, nats per token, log scale",
    column: "loss increase, nats",
    of: (point) => point.loss_increase,
  },
  {
    name: "error-frontier",
    title: "Normalised MSE against K",
    axis: "normalised MSE, log scale",
    column: "normalised MSE",
    of: (point) => point.normalized_mse,
  },
];

/** Each line has an axis of its own that is shifted a little: points of one K are side by side, at their true K. */
function axisOf(i: number, ks: readonly number[]) {
  const [low, high] = [Math.log10((ks[0] ?? 1) / AROUND), Math.log10((ks.at(-1) ?? 1) * AROUND)];
  return { type: "log", range: [low - i * STEP, high - i * STEP] };
}

function tipOf(point: FrontierPoint, name: string, value: Estimate): string {
  const trained = point.k === point.trained_k ? "" : `, trained at ${point.trained_k}`;
  return hoverLines([
    name,
    `K ${point.k}${trained}`,
    `${value.value.toFixed(4)} (${interval(value)})`,
    `${formatCount(point.parameters)} parameters`,
  ]);
}

export function frontierFigure(
  { lines }: Pick<Frontier, "lines">,
  { name, title, axis, column, of }: Measure,
): ViewedFigure {
  const ks = ksOf(lines);
  const values = lines.flatMap(({ points }) => points.map((point) => of(point)));
  const data = lines.map(({ name: line, own, points }, i) => {
    const symbol = SYMBOLS[i % SYMBOLS.length] ?? "circle";
    const estimates = points.map((point) => of(point));
    return {
      type: "scatter",
      mode: "lines+markers",
      name: line,
      meta: { role: own ? "this-run" : "other" },
      xaxis: i === 0 ? "x" : `x${i + 1}`,
      line: { dash: DASHES[i % DASHES.length] },
      marker: { symbol: points.map(({ k, trained_k: trained }) => (k < trained ? `${symbol}-open` : symbol)), size: 9 },
      x: points.map(({ k }) => k),
      y: estimates.map(({ value }) => value),
      error_y: {
        type: "data",
        symmetric: false,
        array: estimates.map(({ value, high }) => high - value),
        arrayminus: estimates.map(({ value, low }) => value - low),
        thickness: 1.25,
      },
      customdata: points.map(({ runs }) => runs[0]),
      hovertemplate: points.map((point) => tipOf(point, line, of(point))),
    };
  });
  const shifted = lines.map((_, i) => axisOf(i, ks));
  return withLegend({
    name,
    title,
    data,
    layout: {
      meta: { columns: { series: "run", point: [], x: "K", y: column } },
      ...Object.fromEntries(
        shifted.slice(1).map((each, i) => [`xaxis${i + 2}`, { ...each, overlaying: "x", visible: false }]),
      ),
      xaxis: {
        ...shifted[0],
        title: { text: "K, experts active per token, log scale" },
        tickvals: ks,
        ticktext: ks.map(String),
        showgrid: false,
      },
      yaxis: { type: "log", title: { text: axis }, ...logTicks(values.flatMap(({ low, high }) => [low, high])) },
    },
  });
}

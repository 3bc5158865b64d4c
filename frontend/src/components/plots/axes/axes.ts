/** Axes: density in percent, log ticks with plain numbers, horizontal titles. */

import type { FigureData } from "@/api/types";
import type { ColumnNames } from "@/components/plots/figure/figure-data";

const SPARSE_DIGITS = [1, 2, 5];
const DENSE_DIGITS = [1, 1.5, 2, 3, 4, 5, 7];
const DENSEST_DIGITS = [1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9];

/** Ticks of a log axis with plain numbers; denser over a short range. */
export function logTicks(values: readonly number[]): Readonly<Record<string, unknown>> {
  const positive = values.filter((value) => value > 0);
  const low = Math.min(...positive);
  const high = Math.max(...positive);
  if (!(low <= high)) return {};
  const decades = Array.from(
    { length: Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 2 },
    (_, i) => Math.floor(Math.log10(low)) - 1 + i,
  );
  const digits = high / low > 8 ? SPARSE_DIGITS : high / low > 2.5 ? DENSE_DIGITS : DENSEST_DIGITS;
  const ticks = decades.flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)));
  return { tickvals: ticks, ticktext: ticks.map(String) };
}

/** The title of a y axis as a horizontal annotation in its upper corner. */
export function cornerTitle(text: string): Readonly<Record<string, unknown>> {
  return {
    text,
    name: "corner",
    xref: "paper",
    yref: "paper",
    x: 0.008,
    y: 0.99,
    xanchor: "left",
    yanchor: "top",
    showarrow: false,
  };
}

const DECADES = [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100];

/** The axis of densities in percent. */
export const DENSITY_AXIS = {
  type: "log",
  title: { text: "activation density, % of tokens, log scale" },
  tickvals: DECADES,
  ticktext: DECADES.map((percent) => percent.toFixed(5).replace(/\.?0+$/, "")),
} as const;

/** The value with every number in it in percent, also inside lists. */
export function inPercent(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inPercent);
  return typeof value === "number" ? 100 * value : value;
}

/** The density axis of a narrow figure: every second tick has a number, so that the numbers stay horizontal. */
const SPARSE_DENSITY_AXIS = {
  ...DENSITY_AXIS,
  ticktext: DENSITY_AXIS.ticktext.map((text, i) => (i % 2 === 1 ? text : "")),
  tickangle: 0,
};

/** The figure with the density axis of a narrow pane. */
export function withSparseDensityAxis(figure: FigureData, even: number): FigureData {
  const { layout, ...rest } = withDensityAxis(figure, even);
  return { ...rest, layout: { ...layout, xaxis: { ...SPARSE_DENSITY_AXIS, showgrid: false } } };
}

/** A line at the density that all experts would have if they were used equally. */
function evenLine(even: number) {
  const at = { xref: "x", yref: "paper" };
  const line = { type: "line", ...at, x0: 100 * even, x1: 100 * even, y0: 0, y1: 1, line: { width: 1.5, dash: "dot" } };
  const name = { text: "K/N", ...at, x: Math.log10(100 * even), y: 1, yanchor: "bottom", showarrow: false };
  return { shapes: [line], annotations: [name] };
}

const DENSITY_COLUMNS = {
  series: "",
  point: ["activation density from, % of tokens", "to, % of tokens"],
  x: "",
  y: "experts",
} satisfies ColumnNames;

/**
 * The server's histogram of densities, in percent. `customdata` contains the ends of each bin.
 *
 * @param even density if all experts were used equally (K/N), drawn as a line
 */
export function withDensityAxis(figure: FigureData, even: number): FigureData {
  return {
    ...figure,
    data: figure.data.map((bars) => ({
      ...bars,
      x: inPercent(bars.x),
      width: inPercent(bars.width),
      customdata: inPercent(bars.customdata),
      hovertemplate: "%{y} experts, density %{customdata[0]:.2~g} to %{customdata[1]:.2~g} %<extra></extra>",
    })),
    layout: {
      ...figure.layout,
      meta: { columns: DENSITY_COLUMNS },
      margin: { l: 38, r: 8, t: 18, b: 38 },
      xaxis: { ...DENSITY_AXIS, showgrid: false },
      yaxis: { rangemode: "tozero", nticks: 5 },
      ...evenLine(even),
    },
  };
}

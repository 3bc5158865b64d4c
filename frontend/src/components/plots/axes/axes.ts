/** Axes: density in percent, log ticks with plain numbers, horizontal titles. */

import type { FigureData } from "@/api/types";

const PADDING_FACTOR = 1.4;
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

/** Range of a log axis with padding, in powers of ten as Plotly expects. */
export function logRange(values: readonly number[]): readonly [number, number] {
  const positive = values.filter((value) => value > 0);
  return [Math.log10(Math.min(...positive) / PADDING_FACTOR), Math.log10(Math.max(...positive) * PADDING_FACTOR)];
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

const DECADES = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1];

export const DENSITY_AXIS = {
  type: "log",
  title: { text: "activation density, % of tokens, log scale" },
  tickvals: DECADES,
  ticktext: DECADES.map((share) => String(Number((share * 100).toPrecision(1)))),
} as const;

/** The density axis of a narrow figure: every second tick has a number, so that the numbers stay horizontal. */
const SPARSE_DENSITY_AXIS = {
  ...DENSITY_AXIS,
  ticktext: DENSITY_AXIS.ticktext.map((text, i) => (i % 2 === 1 ? text : "")),
  tickangle: 0,
};

/** The figure with the density axis of a narrow pane. */
export function withSparseDensityAxis(figure: FigureData, even: number | null): FigureData {
  const { layout, ...rest } = withDensityAxis(figure, even);
  return { ...rest, layout: { ...layout, xaxis: { ...SPARSE_DENSITY_AXIS, showgrid: false } } };
}

/** @param even density if all experts were used equally (K/N), drawn as a line; null for none */
export function withDensityAxis(figure: FigureData, even: number | null): FigureData {
  const line = {
    type: "line",
    xref: "x",
    yref: "paper",
    x0: even,
    x1: even,
    y0: 0,
    y1: 1,
    line: { width: 1.5, dash: "dot" },
  };
  const annotation = {
    text: "K/N",
    xref: "x",
    yref: "paper",
    x: even === null ? 0 : Math.log10(even),
    y: 1,
    yanchor: "bottom",
    showarrow: false,
  };
  return {
    ...figure,
    layout: {
      ...figure.layout,
      margin: { l: 38, r: 8, t: even === null ? 8 : 18, b: 38 },
      xaxis: { ...DENSITY_AXIS, showgrid: false },
      yaxis: { rangemode: "tozero", nticks: 5 },
      ...(even !== null && { shapes: [line], annotations: [annotation] }),
    },
  };
}

/** Axes as this project draws them: usage in percent, logarithms with plain numbers, titles that are not turned. */

import type { FigureData } from "@/api/types";

const ROOM = 1.4;
const SPARSE = [1, 2, 5];
const DENSE = [1, 1.5, 2, 3, 4, 5, 7];
const DENSEST = [1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9];

/** Ticks of a log axis, each written in full, never a lone 2 or 5; more of them where the values lie near. */
export function logTicks(values: readonly number[]): Readonly<Record<string, unknown>> {
  const positive = values.filter((value) => value > 0);
  const low = Math.min(...positive);
  const high = Math.max(...positive);
  if (!(low <= high)) return {};
  const decades = Array.from(
    { length: Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 2 },
    (_, i) => Math.floor(Math.log10(low)) - 1 + i,
  );
  const digits = high / low > 8 ? SPARSE : high / low > 2.5 ? DENSE : DENSEST;
  const ticks = decades.flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)));
  return { tickvals: ticks, ticktext: ticks.map(String) };
}

/** Range of a log axis with a little room, also around a single value; in powers of ten, as Plotly wants it. */
export function logRange(values: readonly number[]): readonly [number, number] {
  const positive = values.filter((value) => value > 0);
  return [Math.log10(Math.min(...positive) / ROOM), Math.log10(Math.max(...positive) * ROOM)];
}

/** The title of a y axis, lying in its upper corner. */
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

export const USAGE_AXIS = {
  type: "log",
  title: { text: "usage, % of tokens, log scale" },
  tickvals: DECADES,
  ticktext: DECADES.map((share) => String(Number((share * 100).toPrecision(1)))),
} as const;

/** @param even usage that every expert would have were all used alike: K of N, drawn as a line */
export function percentUsageAxis(figure: FigureData, even: number | null): FigureData {
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
  const words = {
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
      xaxis: { ...USAGE_AXIS, showgrid: false },
      yaxis: { rangemode: "tozero", nticks: 5 },
      ...(even !== null && { shapes: [line], annotations: [words] }),
    },
  };
}

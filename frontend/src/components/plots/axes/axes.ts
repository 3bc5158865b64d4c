/** Axes: density in percent, log ticks with plain numbers, horizontal titles. */

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

/** How the measured data sets were chosen from the 113 of sae-probes, as far as their numbers show it. */

/** Numbers of the data sets of sae-probes 0.4.2, as ranges; a name begins with its number. */
const RANGES: readonly (readonly [number, number])[] = [
  [5, 7],
  [21, 24],
  [26, 26],
  [36, 36],
  [41, 42],
  [44, 44],
  [47, 52],
  [54, 54],
  [56, 85],
  [87, 87],
  [89, 92],
  [94, 96],
  [100, 100],
  [105, 107],
  [110, 110],
  [113, 163],
];
const NUMBERS = RANGES.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => first + i));

const ORDINALS: Readonly<Record<number, string>> = {
  2: "second",
  3: "third",
  4: "fourth",
  5: "fifth",
  6: "sixth",
  7: "seventh",
  8: "eighth",
  9: "ninth",
  10: "tenth",
};

/** The spacing of the data sets in the order of their numbers; null if they are not evenly spaced from end to end. */
function spacing(datasets: readonly string[]): number | null {
  const places = datasets.map((name) => NUMBERS.indexOf(Number.parseInt(name, 10))).toSorted((a, b) => a - b);
  const [first = -1, second = -1] = places;
  const step = second - first;
  const isEven = places.every((place, i) => place === first + i * step);
  return first >= 0 && step > 0 && isEven && places.length === Math.ceil((NUMBERS.length - first) / step) ? step : null;
}

/** `17 of 113 data sets: every seventh, in the order of their numbers`. */
export function datasetChoice(datasets: readonly string[]): string {
  const [all, step] = [NUMBERS.length, spacing(datasets)];
  if (datasets.length === all) return `All ${all} data sets`;
  const ordinal = step === null ? undefined : ORDINALS[step];
  const how = ordinal === undefined ? "chosen by name" : `every ${ordinal} in the order of their numbers`;
  return `${datasets.length} of ${all} data sets, ${how}`;
}

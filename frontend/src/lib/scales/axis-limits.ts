/** Round numbers for the ends of axes. */

const ROUND_NUMBERS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

/** The smallest round number at or above `value`. */
export function axisLimit(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const nice = ROUND_NUMBERS.find((end) => end * power >= value * (1 - 1e-9)) ?? 10;
  return Number((nice * power).toPrecision(2));
}

/** Round numbers for the ends of scales. */

const NICE_ENDS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

/** The smallest round number that is no less than `value`. */
export function niceEnd(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const nice = NICE_ENDS.find((end) => end * power >= value * (1 - 1e-9)) ?? 10;
  return Number((nice * power).toPrecision(2));
}

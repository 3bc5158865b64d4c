/** Steps of the colour scales, and round ends of axes. */

export const SEQUENTIAL_STEPS = 9;
export const DIVERGING_STEPS = 4;
/** End of the scale of log-probability changes, in nats. */
export const SCALE_LIMIT = 4;

/** 0 for an inactive expert, otherwise 1 to 9 in equal steps of `largest`. */
export function sequentialStep(value: number, largest: number): number {
  if (!(value > 0) || !(largest > 0)) return 0;
  return Math.min(SEQUENTIAL_STEPS, Math.ceil((SEQUENTIAL_STEPS * value) / largest - 1e-9));
}

/** −4 to 4. Differences below a tenth of `limit` are not meaningful and stay 0. */
function divergingStep(value: number, limit: number): number {
  const size = Math.abs(value);
  if (!(limit > 0) || size < limit / 10) return 0;
  return Math.sign(value) * Math.min(DIVERGING_STEPS, Math.ceil((DIVERGING_STEPS * size) / limit - 1e-9));
}

/** CSS class of an activation's shade: `s1` to `s9`, or none. */
export function sequentialClass(value: number, largest: number): string {
  const step = sequentialStep(value, largest);
  return step === 0 ? "" : `s${step}`;
}

/** CSS class of a difference's shade: `u1` to `u4` for positive, `d1` to `d4` for negative, or none. */
export function divergingClass(value: number, limit: number): string {
  const step = divergingStep(value, limit);
  if (step === 0) return "";
  return step > 0 ? `u${step}` : `d${-step}`;
}

const ROUND_NUMBERS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

/** The smallest round number at or above `value`. */
export function axisLimit(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const nice = ROUND_NUMBERS.find((end) => end * power >= value * (1 - 1e-9)) ?? 10;
  return Number((nice * power).toPrecision(2));
}

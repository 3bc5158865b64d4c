/** Steps of the colour scales. Each step is a CSS class, so that themes and forced colours apply. */

export const SEQUENTIAL_STEPS = 9;
export const DIVERGING_STEPS = 4;

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

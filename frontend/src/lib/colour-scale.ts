/** Which step of a scale a value takes. Steps are CSS classes, so that both themes and forced colours follow. */

export const SEQUENTIAL_STEPS = 9;
export const DIVERGING_STEPS = 4;

/** 0 for no coefficient at all, else 1 to 9 in equal stretches of `largest`. */
export function sequentialStep(value: number, largest: number): number {
  if (!(value > 0) || !(largest > 0)) return 0;
  return Math.min(SEQUENTIAL_STEPS, Math.ceil((SEQUENTIAL_STEPS * value) / largest - 1e-9));
}

/** −4 to 4; the middle tenth of the scale, where a difference means nothing, stays 0. */
export function divergingStep(value: number, limit: number): number {
  const size = Math.abs(value);
  if (!(limit > 0) || size < limit / 10) return 0;
  return Math.sign(value) * Math.min(DIVERGING_STEPS, Math.ceil((DIVERGING_STEPS * size) / limit - 1e-9));
}

/** Class of a coefficient's shade: `s1` to `s9`, or nothing. */
export function sequentialClass(value: number, largest: number): string {
  const step = sequentialStep(value, largest);
  return step === 0 ? "" : `s${step}`;
}

/** Class of a difference's shade: `u1` to `u4` up, `d1` to `d4` down, or nothing. */
export function divergingClass(value: number, limit: number): string {
  const step = divergingStep(value, limit);
  if (step === 0) return "";
  return step > 0 ? `u${step}` : `d${-step}`;
}

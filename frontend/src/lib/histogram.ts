/** Counts in equal bins from 0 upward. */

export interface Histogram {
  readonly counts: readonly number[];
  /** Upper edge of the last bin. */
  readonly high: number;
}

/** Without the empty bins at its end: edges are round numbers, coefficients are not. */
export function trimmed({ counts, high }: Histogram): Histogram {
  const kept = counts.findLastIndex((count) => count > 0) + 1;
  return kept === 0 ? { counts, high } : { counts: counts.slice(0, kept), high: (high * kept) / counts.length };
}

/** Heights between 0 and 1 of log(1 + count). */
export function logHeights(counts: readonly number[]): readonly number[] {
  const top = Math.log1p(Math.max(1, ...counts));
  return counts.map((count) => Math.log1p(Math.max(0, count)) / top);
}

/** Counts in equal bins starting at 0. */

export interface Histogram {
  readonly counts: readonly number[];
  /** Upper edge of the last bin. */
  readonly high: number;
}

/** Drop empty bins at the end. The server rounds the upper edge up, so they are common. */
export function trimHistogram({ counts, high }: Histogram): Histogram {
  const bins = counts.findLastIndex((count) => count > 0) + 1;
  return bins === 0 ? { counts, high } : { counts: counts.slice(0, bins), high: (high * bins) / counts.length };
}

/** log(1 + count), scaled to between 0 and 1. */
export function logHeights(counts: readonly number[]): readonly number[] {
  const top = Math.log1p(Math.max(1, ...counts));
  return counts.map((count) => Math.log1p(Math.max(0, count)) / top);
}

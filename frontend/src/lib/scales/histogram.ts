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

/** Share of the counts above a value. The bin that contains the value counts in proportion to its part above it. */
export function shareAbove({ counts, high }: Histogram, value: number): number {
  const width = high / Math.max(1, counts.length);
  const above = counts.map((count, i) => count * Math.min(1, Math.max(0, i + 1 - value / width)));
  const sum = (values: readonly number[]) => values.reduce((total, count) => total + count, 0);
  return sum(above) / Math.max(1, sum(counts));
}

/** log(1 + count), scaled to between 0 and 1. */
export function logHeights(counts: readonly number[]): readonly number[] {
  const top = Math.log1p(Math.max(1, ...counts));
  return counts.map((count) => Math.log1p(Math.max(0, count)) / top);
}

/** Histogram of log counts with an optional marker. */

import { memo } from "react";

import type { ExpertRow } from "@/api/types";
import { formatCompact } from "@/lib/text/format";

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

const BIN = 10;
const GAP = 1.2;

const Bars = memo(function Bars({ counts, height }: { readonly counts: readonly number[]; readonly height: number }) {
  const path = logHeights(counts)
    .map((share, i) =>
      share > 0 ? `M${i * BIN} ${height}v-${Math.max(1, share * height).toFixed(1)}h${BIN - GAP}V${height}z` : "",
    )
    .join("");
  return <path d={path} fill="var(--mark)" />;
});

/** For table rows: no axis and no marker. */
export function SparkHistogram({ label, ...all }: Pick<Histogram, "counts"> & { readonly label: string }) {
  const { counts } = trimHistogram({ ...all, high: 1 });
  return (
    <svg
      className="spark"
      viewBox={`0 0 ${counts.length * BIN} 40`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <Bars counts={counts} height={40} />
    </svg>
  );
}

interface ActivationHistogramProps {
  readonly row: ExpertRow;
  readonly height: number;
  readonly caption: string;
  /** Value to mark, such as the activation under the pointer. */
  readonly marker?: number | null;
}

/** The expert's activations. The axis ends at the largest one. */
export function ActivationHistogram({ row, height, caption, marker = null }: ActivationHistogramProps) {
  const { counts, high: edge } = trimHistogram({ counts: row.histogram, high: row.histogram_high });
  const high = row.max_activation > 0 ? Math.min(row.max_activation, edge) : edge;
  const largest = Math.max(1, ...counts);
  const width = counts.length * BIN * (edge > 0 ? high / edge : 1);
  const markerPercent = marker === null || !(high > 0) ? null : Math.min(100, Math.max(0, (100 * marker) / high));
  return (
    <figure className="hist">
      <div className="hist-plot" style={{ height }}>
        <svg
          viewBox={`0 0 ${width} ${height}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`Histogram, 0 to ${high.toFixed(2)}: ${caption}`}
        >
          <Bars counts={counts} height={height} />
        </svg>
        {[1, 10, 100, 1000, 10_000, 100_000]
          .filter((count) => count <= largest)
          .map((count) => (
            <span
              key={count}
              className="hist-tick"
              style={{ bottom: `${(100 * Math.log1p(count)) / Math.log1p(largest)}%` }}
            >
              {formatCompact(count)}
            </span>
          ))}
        {markerPercent !== null && (
          <span
            className="hist-mark"
            style={{ left: `${markerPercent}%` }}
            data-side={markerPercent > 70 ? "left" : "right"}
          >
            <b>{marker?.toFixed(2)}</b>
          </span>
        )}
      </div>
      <figcaption className="ticks">
        <span>0</span>
        <span>{caption}</span>
        <span>{high.toFixed(2)}</span>
      </figcaption>
    </figure>
  );
}

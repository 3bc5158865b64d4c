/** Histogram of log counts with an optional marker. */

import { memo } from "react";

import type { ExpertRow } from "@/api/types";
import { logHeights, trimHistogram } from "@/lib/scales/histogram";
import { formatCompact } from "@/lib/text/format";

const BIN = 10;
const GAP = 1.2;

const Bars = memo(function Bars({ counts, height }: { readonly counts: readonly number[]; readonly height: number }) {
  const path = logHeights(counts)
    .map((share, i) =>
      share > 0 ? `M${i * BIN} ${height}v-${Math.max(1, share * height).toFixed(1)}h${BIN - GAP}V${height}z` : "",
    )
    .join("");
  return <path d={path} fill="var(--mark-soft)" />;
});

/** For table rows: no axis and no marker. */
export function SparkHistogram({
  label,
  ...histogram
}: {
  readonly counts: readonly number[];
  readonly label: string;
}) {
  const { counts } = trimHistogram({ counts: histogram.counts, high: 1 });
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

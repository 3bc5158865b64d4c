/** A coefficient as a bar, shaded and as long as its share of `largest`. The number stands beside it, not in it. */

import { sequentialStep } from "@/lib/colour-scale";

interface CoefficientBarProps {
  readonly value: number;
  /** What a full bar means. */
  readonly largest: number;
  /** End of the colour scale, where that is another expert's. */
  readonly scaleEnd?: number;
}

export function CoefficientBar({ value, largest, scaleEnd = largest }: CoefficientBarProps) {
  const step = sequentialStep(value, scaleEnd);
  const share = largest > 0 ? Math.min(1, Math.max(0, value / largest)) : 0;
  return (
    <span className="cbar" aria-hidden="true">
      <span style={{ width: `${100 * share}%`, background: `var(--seq-${Math.max(1, step)})` }} />
    </span>
  );
}

/** A coefficient as a number on its shade. */
export function CoefficientCell({ value, largest }: { readonly value: number; readonly largest: number }) {
  return <span className={`cf s${Math.max(1, sequentialStep(value, largest))}`}>{value.toFixed(2)}</span>;
}

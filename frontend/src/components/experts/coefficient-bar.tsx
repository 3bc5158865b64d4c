/** An activation as a shaded bar; its length is the share of `largest`. The number is separate. */

import { sequentialStep } from "@/lib/scales/colour-scale";

interface CoefficientBarProps {
  readonly value: number;
  /** Value of a full bar. */
  readonly largest: number;
  /** End of the colour scale, if it is not `largest`. */
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

/** An activation as a number on its shade. */
export function CoefficientCell({ value, largest }: { readonly value: number; readonly largest: number }) {
  return <span className={`cf s${Math.max(1, sequentialStep(value, largest))}`}>{value.toFixed(2)}</span>;
}

/** Legend of a colour scale with its end values. */

import { DIVERGING_STEPS, SEQUENTIAL_STEPS } from "@/lib/scales/colour-scale";

const steps = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `var(--${prefix}-${i + 1})`);

const COLOURS = {
  sequential: steps(SEQUENTIAL_STEPS, "seq"),
  diverging: [...steps(DIVERGING_STEPS, "down").toReversed(), "var(--surface)", ...steps(DIVERGING_STEPS, "up")],
};

interface RampLegendProps {
  readonly kind: keyof typeof COLOURS;
  /** Label of the low end, e.g. `Activation 0`. */
  readonly low: string;
  readonly high: string;
}

export function RampLegend({ kind, low, high }: RampLegendProps) {
  return (
    <span className="ramp">
      {low}
      <i aria-hidden="true">
        {COLOURS[kind].map((colour) => (
          <b key={colour} style={{ background: colour }} />
        ))}
      </i>
      <span className="sr">to</span>
      {high}
    </span>
  );
}

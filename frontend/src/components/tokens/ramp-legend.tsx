/** Legend of a colour scale with its end values. */

import { DIVERGING_STEPS, SEQUENTIAL_STEPS } from "@/lib/scales/colour-scale";

interface RampLegendProps {
  readonly kind: "sequential" | "diverging";
  /** Label of the low end, e.g. `Activation 0`. */
  readonly low: string;
  readonly high: string;
}

function steps(from: number, prefix: string): readonly string[] {
  return Array.from({ length: from }, (_, i) => `var(--${prefix}-${i + 1})`);
}

function colours(kind: RampLegendProps["kind"]): readonly string[] {
  if (kind === "sequential") return steps(SEQUENTIAL_STEPS, "seq");
  return [...steps(DIVERGING_STEPS, "down").toReversed(), "var(--surface)", ...steps(DIVERGING_STEPS, "up")];
}

export function RampLegend({ kind, low, high }: RampLegendProps) {
  return (
    <span className="ramp">
      {low}
      <i aria-hidden="true">
        {colours(kind).map((colour) => (
          <b key={colour} style={{ background: colour }} />
        ))}
      </i>
      <span className="sr">to</span>
      {high}
    </span>
  );
}

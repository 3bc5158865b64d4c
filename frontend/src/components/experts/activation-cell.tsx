/** An activation as a number on its shade. */

import { sequentialStep } from "@/lib/scales/colour-scale";

export function ActivationCell({ value, largest }: { readonly value: number; readonly largest: number }) {
  return <span className={`cf s${Math.max(1, sequentialStep(value, largest))}`}>{value.toFixed(2)}</span>;
}

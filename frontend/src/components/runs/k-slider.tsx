/** Slider for the number of active experts per token, from 1 to the run's own K. */

import type { RunSummary } from "@/api/types";
import { Slider } from "@/components/ui/slider";
import { useDraggedValue } from "@/hooks/use-values";

/** K to send to the server: null for the run's own K, or if its gate has no top-K. */
export function effectiveK(run: RunSummary, k: number | null): number | null {
  return !run.has_top_k || k === null || k === run.k ? null : Math.round(k);
}

/** The values of K the run was trained for, e.g. `trained for K = 2 to 16`. */
export function describeTrainedK({ k, min_k: smallest }: Pick<RunSummary, "k" | "min_k">): string {
  return smallest === null || smallest === k ? `trained at K = ${k}` : `trained for K = ${smallest} to ${k}`;
}

interface KSliderProps {
  readonly run: RunSummary;
  /** null for the run's own K. */
  readonly k: number | null;
  readonly onChange: (k: number | null) => void;
}

/** Renders nothing if K is fixed. The value is committed when the thumb is released. */
export function KSlider({ run, k, onChange }: KSliderProps) {
  const current = Math.min(effectiveK(run, k) ?? run.k, run.k);
  const { shown, drag, commit } = useDraggedValue(current, (next) => onChange(next === run.k ? null : next));
  if (!run.has_top_k || run.k === 1) return null;
  return (
    <div className="k-slider" role="group" aria-label="Active experts per token" title={describeTrainedK(run)}>
      <span>
        K <output className="num">{shown}</output> <span className="dim">of {run.k}</span>
      </span>
      <Slider
        label="Active experts per token"
        value={shown}
        min={1}
        max={run.k}
        step={1}
        neutral={run.k}
        ticks={[]}
        onChange={drag}
        onChangeEnd={commit}
      />
    </div>
  );
}

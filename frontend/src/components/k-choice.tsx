/** How many experts of a token are let through, the strongest first: a slider from 1 to the run's own K. */

import { useState } from "react";

import type { RunSummary } from "@/api/types";

import { Slider } from "./slider";

/** What the server is asked for: nothing where the run's own K is wanted, or its gate has none to choose. */
export function chosenK(run: RunSummary, k: number | null): number | null {
  return !run.has_top_k || k === null || k === run.k ? null : Math.round(k);
}

/** `fitted for 2 to 16`: the numbers of experts with which the run was fitted to answer. */
export function fittedKs({ k, smallest_k: smallest }: Pick<RunSummary, "k" | "smallest_k">): string {
  return smallest === null || smallest === k ? `fitted for ${k} alone` : `fitted for ${smallest} to ${k}`;
}

interface KChoiceProps {
  readonly run: RunSummary;
  /** Null where it is the run's own. */
  readonly k: number | null;
  readonly onChange: (k: number | null) => void;
}

/** Nothing where there is no choice. It counts when the thumb is let go. */
export function KChoice({ run, k, onChange }: KChoiceProps) {
  // Kept until the choice has arrived, or a key that is pressed meanwhile would start from the one before.
  const [moved, setMoved] = useState<{ readonly from: number | null; readonly to: number } | null>(null);
  if (moved !== null && moved.from !== k) setMoved(null);
  if (!run.has_top_k || run.k === 1) return null;
  const value = moved?.from === k ? moved.to : Math.min(chosenK(run, k) ?? run.k, run.k);
  const move = (to: number) => setMoved({ from: k, to });
  const commit = (next: number) => {
    move(next);
    onChange(next === run.k ? null : next);
  };
  return (
    <div className="k-choice" role="group" aria-label="Experts of a token" title={fittedKs(run)}>
      <span>
        K <output className="num">{value}</output> <span className="dim">of {run.k}</span>
      </span>
      <Slider
        label="Experts of a token"
        value={value}
        min={1}
        max={run.k}
        step={1}
        neutral={run.k}
        ticks={[]}
        onChange={move}
        onChangeEnd={commit}
      />
    </div>
  );
}

/** Strength sweep of one edit: the request, and the response as effect and cost. */

import type { DoseDoneEvent, DoseRequest, SteeringRequest } from "@/api/types";
import { type Edit, editKey, type EditMode } from "@/lib/edits/edits";

export interface DosePoint {
  readonly strength: number;
  /**
   * Mean KL divergence between baseline and steered next-token distributions over the steered text, in nats per
   * token.
   */
  readonly effect: number;
  /** Increase in probability of the expert's five most promoted tokens. */
  readonly lift: number;
  /** Perplexity of the steered text under the unedited model, relative to that of the baseline text. */
  readonly cost: number;
  /** The first steered sample. */
  readonly text: string;
}

export type SweepMode = Exclude<EditMode, "ablate">;

export const SWEEP_STRENGTHS: Readonly<Record<SweepMode, readonly number[]>> = {
  scale: [0, 1, 2, 4, 6, 8],
  add: [0, 1, 2, 3, 4, 6, 8],
  set: [0, 1, 2, 3, 4, 6, 8],
};

/** Few short samples suffice to distinguish a subtle effect from lost fluency. */
const MAX_TOKENS = 24;
const SAMPLES = 3;

/** The page's request, with one edit at every strength of its mode. */
export function doseRequest(request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }): DoseRequest {
  const { sampling = {}, edits = [] } = request;
  const index = edits.findIndex((other) => editKey({ expert: other.expert, ...runOf(other) }) === editKey(edit));
  return {
    ...request,
    edits: edits.map((other, i) => (i === index ? { ...other, strength: 1 } : other)),
    edit: index,
    strengths: [...SWEEP_STRENGTHS[edit.mode]],
    sampling: { ...sampling, max_tokens: Math.min(MAX_TOKENS, sampling.max_tokens ?? MAX_TOKENS), samples: SAMPLES },
  };
}

function runOf({ run }: { readonly run?: string | null }): { run?: string } {
  return run == null ? {} : { run };
}

/** Cache key of a sweep: the request without the edit's own strength. */
export function doseKey(request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }): string {
  return JSON.stringify(doseRequest(request, edit));
}

export function dosePoints({ points, baseline_loss: baselineLoss }: DoseDoneEvent): readonly DosePoint[] {
  return points.map(({ strength, kl, lift, loss, text }) => ({
    strength,
    effect: kl,
    lift,
    cost: Math.exp(loss - baselineLoss),
    text,
  }));
}

/** The measured point nearest to a strength. */
export function nearestDose(points: readonly DosePoint[], strength: number): DosePoint | null {
  const distance = (point: DosePoint) => Math.abs(point.strength - strength);
  return points.toSorted((a, b) => distance(a) - distance(b))[0] ?? null;
}

/** One edit over a range of strengths: what the server is asked for, and its answer as effect and cost. */

import type { DoseDoneEvent, DoseRequest, SteeringRequest } from "@/api/types";
import { type Edit, editKey, type EditMode } from "@/lib/edits";

export interface DosePoint {
  readonly strength: number;
  /** Mean KL between the arms after the steered text, in nats a token. */
  readonly effect: number;
  /** Probability that the expert's own promoted tokens gain, among the five most probable. */
  readonly lift: number;
  /** Perplexity of the steered text to the language model without edits, over that of its own text. */
  readonly cost: number;
  /** The first of the steered texts. */
  readonly text: string;
}

export type DosedMode = Exclude<EditMode, "off">;

export const DOSES: Readonly<Record<DosedMode, readonly number[]>> = {
  scale: [0, 1, 2, 4, 6, 8],
  add: [0, 1, 2, 3, 4, 6, 8],
  set: [0, 1, 2, 3, 4, 6, 8],
};

/** Short, and a few of them: enough to tell a nudge from a wreck. */
const TOKENS = 24;
const SAMPLES = 3;

/** The page's request with one edit at every strength. */
export function doseRequest(request: SteeringRequest, edit: Edit & { readonly mode: DosedMode }): DoseRequest {
  const { sampling = {}, edits = [] } = request;
  const place = edits.findIndex((other) => editKey({ expert: other.expert, ...runOf(other) }) === editKey(edit));
  return {
    ...request,
    edits: edits.map((other, i) => (i === place ? { ...other, strength: 1 } : other)),
    edit: place,
    strengths: [...DOSES[edit.mode]],
    sampling: { ...sampling, max_tokens: Math.min(TOKENS, sampling.max_tokens ?? TOKENS), samples: SAMPLES },
  };
}

function runOf({ run }: { readonly run?: string | null }): { run?: string } {
  return run == null ? {} : { run };
}

/** Where every dose of one edit gives the same answers: all of the request but that edit's strength. */
export function doseKey(request: SteeringRequest, edit: Edit & { readonly mode: DosedMode }): string {
  return JSON.stringify(doseRequest(request, edit));
}

export function dosePoints({ points, default_loss: without }: DoseDoneEvent): readonly DosePoint[] {
  return points.map(({ strength, kl, lift, loss, text }) => ({
    strength,
    effect: kl,
    lift,
    cost: Math.exp(loss - without),
    text,
  }));
}

/** The dose measured nearest to a strength. */
export function nearestDose(points: readonly DosePoint[], strength: number): DosePoint | null {
  const distance = (point: DosePoint) => Math.abs(point.strength - strength);
  return points.toSorted((a, b) => distance(a) - distance(b))[0] ?? null;
}

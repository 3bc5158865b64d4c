/** Effect and cost of one edit over a range of strengths, out of short generations. */

import type { SteeringRequest, TokenEvent } from "@/api/types";
import type { Edit, EditMode } from "@/lib/edits";

export interface DosePoint {
  readonly strength: number;
  /** Mean KL between the arms after the steered text, in nats a token. */
  readonly effect: number;
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
const SAMPLES = 2;

/** The page's request with one edit at another strength. */
export function doseRequest(request: SteeringRequest, edit: Edit, strength: number): SteeringRequest {
  const { sampling = {} } = request;
  return {
    ...request,
    edits: (request.edits ?? []).map((other) => (other.expert === edit.expert ? { ...other, strength } : other)),
    sampling: { ...sampling, max_tokens: Math.min(TOKENS, sampling.max_tokens ?? TOKENS), samples: SAMPLES },
  };
}

/** Where every dose of one edit gives the same answers: all of the request but that edit's strength. */
export function doseKey(request: SteeringRequest, edit: Edit): string {
  return JSON.stringify([doseRequest(request, edit, 0), edit.expert, edit.mode]);
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Log probability of a token without edits; `probability` is under the arm that wrote it. */
function plainLogProbability({ arm, probability, delta_log_probability: delta }: TokenEvent): number {
  return Math.log(Math.max(probability, Number.MIN_VALUE)) - (arm === "steered" ? delta : 0);
}

export function dosePoint(strength: number, tokens: readonly TokenEvent[]): DosePoint {
  const steered = tokens.filter((token) => token.arm === "steered");
  const own = tokens.filter((token) => token.arm === "default");
  return {
    strength,
    effect: mean(steered.map((token) => token.kl)),
    cost: Math.exp(mean(own.map(plainLogProbability)) - mean(steered.map(plainLogProbability))),
    text: steered
      .filter((token) => token.sample === 0)
      .map((token) => token.text)
      .join(""),
  };
}

/** The dose measured nearest to a strength. */
export function nearestDose(points: readonly DosePoint[], strength: number): DosePoint | null {
  const distance = (point: DosePoint) => Math.abs(point.strength - strength);
  return points.toSorted((a, b) => distance(a) - distance(b))[0] ?? null;
}

/** How many times dearer than without the edit a text may be and still read like one. */
const DEAREST = 1.6;
/** Effect beyond that of the other edits from which this one shows at all. */
const WEAKEST = 0.05;

/** The strongest dose before one that costs too much; null where none both shows and is affordable. */
export function suggestedDose(points: readonly DosePoint[], neutral: number): number | null {
  const without = nearestDose(points, neutral);
  if (without === null) return null;
  const from = points.indexOf(without);
  const tooDear = points.findIndex((point, i) => i > from && point.cost > DEAREST * Math.max(1, without.cost));
  const affordable = points.slice(from, tooDear === -1 ? undefined : tooDear);
  return affordable.findLast((point) => point.effect >= without.effect + WEAKEST)?.strength ?? null;
}

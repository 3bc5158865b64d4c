/** Strength sweep of one edit: the request, and what its result says. */

import type {
  ConceptScore,
  Sampling,
  StrengthSweepProgressEvent,
  StrengthSweepRequest,
  StrengthSweepText,
  SteeringRequest,
} from "@/api/types";
import { type Edit, editKey, type StrengthEdit } from "@/lib/edits/edits";
import { formatFixed, formatSigned } from "@/lib/text/format";

import { requestEdits } from "./steering-params";

export const SWEEP_STRENGTHS: Readonly<Record<StrengthEdit["mode"], readonly number[]>> = {
  scale: [0, 1, 2, 4, 6, 8],
  add: [0, 1, 1.5, 2, 2.5, 3, 4],
  set: [0, 1, 1.5, 2, 2.5, 3, 4],
};

/** Few short samples mostly suffice to distinguish a subtle effect from lost fluency. */
const MAX_TOKENS = 24;
export const SAMPLES = { few: 4, many: 12 } as const;

/** The edits of a request, with one of them at another strength. */
export const editsAt = (edits: readonly Edit[], edit: StrengthEdit, strength: number): readonly Edit[] =>
  edits.map((other) => (editKey(other) === editKey(edit) ? { ...edit, strength } : other));

/** How a sweep measures: the strengths, and the texts at each of them. */
export interface SweepPlan {
  readonly strengths: readonly number[];
  readonly samples: number;
}

/** The page's request, with one edit at every strength of the plan. */
export function sweepRequest(request: SteeringRequest, edit: StrengthEdit, plan: SweepPlan): StrengthSweepRequest {
  const { sampling = {}, edits = [] } = request;
  const index = requestEdits(edits).findIndex((other) => editKey(other) === editKey(edit));
  return {
    ...request,
    edits: edits.map((other, i) => (i === index ? { ...other, strength: 1 } : other)),
    edit: index,
    strengths: [...plan.strengths],
    sampling: { ...sampling, max_tokens: sweepTokens(sampling), samples: plan.samples },
  };
}

const sweepTokens = ({ max_tokens: tokens = MAX_TOKENS }: Sampling) => Math.min(MAX_TOKENS, tokens);

/** A strength with what is known of it by now. */
export type SweepRowData = Pick<StrengthSweepText, "strength"> & Partial<StrengthSweepText>;

/** One row per strength from the start, so that the table keeps its size while texts arrive. */
export function rowsSoFar(
  strengths: readonly number[],
  progress: Partial<StrengthSweepProgressEvent>,
): readonly SweepRowData[] {
  return strengths.map((strength) => {
    const found = progress.texts?.find((text) => text.strength === strength);
    if (found === undefined) return { strength };
    // Of a few tokens, perplexity and shares say nothing.
    const { text, control_text, kl } = found;
    return isEarly(progress) ? { strength, text, control_text, kl } : found;
  });
}

/** Fewer than half of the tokens: too few for a suggestion. */
export const isEarly = ({ tokens = 0, total = 0 }: Partial<StrengthSweepProgressEvent>) =>
  2 * tokens < total || total === 0;

/** Cache key of a sweep: the request without the edit's own strength. */
export const sweepKey = (...of: Parameters<typeof sweepRequest>) => JSON.stringify(sweepRequest(...of));

/** Percentages with one decimal below 10. */
export function formatShare(share: number): string {
  return formatFixed(100 * share, share < 0.0995 ? 1 : 0);
}

/** Two standard errors of the difference to each side of a score. */
export const intervalOf = ({ steered, standard_error: error }: ConceptScore) =>
  [Math.max(0, steered - 2 * error), steered + 2 * error] as const;

/** `14 % (random expert 1.2 %, clear from 5.2 %, difference +13 ± 4)`: plus or minus two standard errors. */
export function describeScore(score: ConceptScore): string {
  const [steered, control, limit] = [score.steered, score.control, score.clear_from].map(formatShare);
  const difference = formatSigned(100 * (score.steered - score.control), 1);
  const interval = formatFixed(200 * score.standard_error, 1);
  return `${steered}\u00a0% (random expert ${control}\u00a0%, clear from ${limit}\u00a0%, difference ${difference} ± ${interval})`;
}

export function describeSample({ sampling = {} }: SteeringRequest, samples: number): string {
  return `Figures are means over ${samples} texts of up to ${sweepTokens(sampling)} tokens.`;
}

/** Strength sweep of one edit: the request, and what its result says. */

import type {
  ConceptScore,
  StrengthSweepDoneEvent,
  StrengthSweepPoint,
  StrengthSweepRequest,
  StrengthSweepText,
  SteeringRequest,
} from "@/api/types";
import { type Edit, editKey, type EditMode } from "@/lib/edits/edits";
import { formatFixed, formatSigned } from "@/lib/text/format";

export type SweepMode = Exclude<EditMode, "ablate">;

export const SWEEP_STRENGTHS: Readonly<Record<SweepMode, readonly number[]>> = {
  scale: [0, 1, 2, 4, 6, 8],
  add: [0, 1, 2, 3, 4, 6, 8],
  set: [0, 1, 2, 3, 4, 6, 8],
};

/** Few short samples suffice to distinguish a subtle effect from lost fluency. */
const MAX_TOKENS = 24;
const SAMPLES = 4;
/** The server's limit for a suggestion. */
export const MAX_PERPLEXITY_RATIO = 3;

/** The page's request, with one edit at every strength of its mode. */
export function sweepRequest(
  request: SteeringRequest,
  edit: Edit & { readonly mode: SweepMode },
): StrengthSweepRequest {
  const { sampling = {}, edits = [] } = request;
  const index = edits.findIndex((other) => editKey({ expert: other.expert, ...runOf(other) }) === editKey(edit));
  return {
    ...request,
    edits: edits.map((other, i) => (i === index ? { ...other, strength: 1 } : other)),
    edit: index,
    strengths: [...SWEEP_STRENGTHS[edit.mode]],
    sampling: { ...sampling, max_tokens: sweepTokens(sampling), samples: SAMPLES },
  };
}

function sweepTokens({ max_tokens: tokens = MAX_TOKENS }: NonNullable<SteeringRequest["sampling"]>): number {
  return Math.min(MAX_TOKENS, tokens);
}

/** A strength with what is known of it by now. */
export type SweepRowData = Pick<StrengthSweepPoint, "strength"> & Partial<StrengthSweepPoint>;

/** One row per strength from the start, so that the table keeps its size while texts arrive. */
export function rowsSoFar(strengths: readonly number[], texts: readonly StrengthSweepText[]): readonly SweepRowData[] {
  return strengths.map((strength) => texts.find((text) => text.strength === strength) ?? { strength });
}

function runOf({ run }: { readonly run?: string | null }): { run?: string } {
  return run == null ? {} : { run };
}

/** Cache key of a sweep: the request without the edit's own strength. */
export function sweepKey(request: SteeringRequest, edit: Edit & { readonly mode: SweepMode }): string {
  return JSON.stringify(sweepRequest(request, edit));
}

/** Percentages with one decimal below 10. */
export function formatShare(share: number): string {
  return formatFixed(100 * share, share < 0.0995 ? 1 : 0);
}

/** `14 % (control 1.2 %, difference +13 ± 4)`: plus or minus two standard errors, in percentage points. */
export function describeScore({ steered, control, standard_error: error }: ConceptScore): string {
  const difference = formatSigned(100 * (steered - control), 1);
  const interval = formatFixed(200 * error, 1);
  return `${formatShare(steered)}\u00a0% (control ${formatShare(control)}\u00a0%, difference ${difference} ± ${interval})`;
}

const exceeds = (score: ConceptScore) => score.exceeds_control;

type Measure = "activation" | "promoted";

const MEASURE_NAMES = { activation: "mean activation", promoted: "share of promoted tokens" } as const;

/** Which strength to use and by which rule, or why there is none. */
export function verdict(done: StrengthSweepDoneEvent, describe: (strength: number) => string): string {
  const { suggested, points } = done;
  const chosen = points.find((point) => point.strength === suggested);
  if (chosen !== undefined) return describeChosen(chosen, points, describe);
  const shown = points.find(
    ({ activation, promoted, strength }) => strength > 0 && [activation, promoted].some(exceeds),
  );
  if (shown !== undefined) {
    const cost = `× ${formatFixed(shown.perplexity_ratio, 1)}`;
    return `No strength suits: the concept first shows at ${describe(shown.strength)}, where perplexity is ${cost}; at most × ${MAX_PERPLEXITY_RATIO} counts as fluent.`;
  }
  return "No strength suits: at none of them do the texts show the concept more than those of the control.";
}

function describeChosen(
  chosen: StrengthSweepPoint,
  points: readonly StrengthSweepPoint[],
  describe: (strength: number) => string,
): string {
  const measure = clearestMeasure(chosen);
  const rule = `${describe(chosen.strength)} is the smallest strength at which a concept score, here the ${MEASURE_NAMES[measure]}, clearly exceeds the control’s, at a perplexity of at most × ${MAX_PERPLEXITY_RATIO}.`;
  const score = `The score is ${describeScore(chosen[measure])}, at perplexity × ${formatFixed(chosen.perplexity_ratio, 1)}.`;
  const best = points
    .filter((point) => point.perplexity_ratio <= MAX_PERPLEXITY_RATIO)
    .reduce((a, b) => (b[measure].steered > a[measure].steered ? b : a), chosen);
  if (best === chosen) return `${rule} ${score} No other strength within this limit scores higher.`;
  return `${rule} ${score} The largest within this limit is ${formatShare(best[measure].steered)}\u00a0% at ${describe(best.strength)}, at perplexity × ${formatFixed(best.perplexity_ratio, 1)}.`;
}

/** Of the measures that show the concept, the one that exceeds its control by more standard errors. */
function clearestMeasure({ activation, promoted }: StrengthSweepPoint): Measure {
  const surplus = (score: ConceptScore) =>
    exceeds(score) ? (score.steered - score.control) / Math.max(score.standard_error, 1e-6) : -1;
  return surplus(activation) > surplus(promoted) ? "activation" : "promoted";
}

/** What the figures are measured on. */
export function describeSample({ sampling = {} }: SteeringRequest): string {
  return `Figures are means over ${SAMPLES} texts of up to ${sweepTokens(sampling)} tokens. Only the difference has an interval, ± 2 standard errors.`;
}

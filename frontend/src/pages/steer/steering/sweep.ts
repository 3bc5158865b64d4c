/** Strength sweep of one edit: the request, and what its result says. */

import type {
  ConceptScore,
  StrengthSweepPoint,
  StrengthSweepRequest,
  StrengthSweepText,
  SteeringRequest,
} from "@/api/types";
import { editKey, type StrengthEdit } from "@/lib/edits/edits";
import { formatFixed, formatSigned } from "@/lib/text/format";

export const SWEEP_STRENGTHS: Readonly<Record<StrengthEdit["mode"], readonly number[]>> = {
  scale: [0, 1, 2, 4, 6, 8],
  add: [0, 1, 2, 3, 4, 6, 8],
  set: [0, 1, 2, 3, 4, 6, 8],
};

/** Few short samples suffice to distinguish a subtle effect from lost fluency. */
const MAX_TOKENS = 24;
const SAMPLES = 4;
/** The page's request, with one edit at every strength of its mode. */
export function sweepRequest(request: SteeringRequest, edit: StrengthEdit): StrengthSweepRequest {
  const { sampling = {}, edits = [] } = request;
  const index = edits.findIndex(
    ({ expert, run }) => editKey(run == null ? { expert } : { expert, run }) === editKey(edit),
  );
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

/**
 * One row per strength from the start, so that the table keeps its size while texts arrive. Of a few tokens, the
 * perplexity says nothing.
 */
export function rowsSoFar(strengths: readonly number[], texts: readonly StrengthSweepText[]): readonly SweepRowData[] {
  return strengths.map((strength) => {
    const found = texts.find((text) => text.strength === strength);
    if (found === undefined) return { strength };
    const { text, control_text, kl } = found;
    return { strength, text, control_text, kl };
  });
}

/** Cache key of a sweep: the request without the edit's own strength. */
export function sweepKey(request: SteeringRequest, edit: StrengthEdit): string {
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

/** For example `Use +1: activation 8.4 % (control 1.6 %), perplexity × 2.4`. */
export function describeSuggestion(strength: string, point: SweepRowData | undefined): string {
  const scores = (
    [
      ["activation", point?.activation],
      ["promoted", point?.promoted],
    ] as const
  ).flatMap(([name, score]) =>
    score?.exceeds_control === true
      ? [`${name} ${formatShare(score.steered)}\u00a0% (control ${formatShare(score.control)}\u00a0%)`]
      : [],
  );
  const perplexity = `perplexity ×\u00a0${formatFixed(point?.perplexity_ratio ?? 1, 1)}`;
  return `Use ${strength}: ${[...scores, perplexity].join(", ")}`;
}

/** What the figures are measured on. */
export function describeSample({ sampling = {} }: SteeringRequest): string {
  return `Figures are means over ${SAMPLES} texts of up to ${sweepTokens(sampling)} tokens.`;
}

/** What a check says about a circuit: one claim, the figures that it rests on, and all others. */

import type { CircuitCheck, CircuitGraph } from "@/api/types";
import { formatCount, formatFixed, formatSigned } from "@/lib/text/format";

/** Limits of the claim. They are conventions of MxD Explorer, and are stated in the glossary. */
const GOOD = { correlation: 0.9, sameSign: 0.8 };
const WEAK = { correlation: 0.6, sameSign: 0.65 };
/** Shares of what all experts do. */
const PART = 0.2;
const MOST = 0.5;

interface Figure {
  readonly name: string;
  readonly value: string;
  readonly note?: string;
}

interface Verdict {
  readonly level: "good" | "weak" | "bad";
  readonly claim: string;
  /** What the shown experts do, and whether the predictions hold. */
  readonly figures: readonly Figure[];
  readonly details: readonly Figure[];
}

const percent = (share: number) => `${formatFixed(100 * share, 0)}\u00a0%`;
const correlationText = (r: number | null) => (r === null ? "too few for r" : `r = ${formatFixed(r, 2)}`);

function levelOf({ correlation, same_sign: sameSign }: CircuitCheck["experts"]): Verdict["level"] {
  const reaches = (limits: typeof GOOD) =>
    (correlation ?? -1) >= limits.correlation && (sameSign ?? 0) >= limits.sameSign;
  return reaches(GOOD) ? "good" : reaches(WEAK) ? "weak" : "bad";
}

export function verdict(graph: CircuitGraph, { experts, between, joint, sufficiency, scores }: CircuitCheck): Verdict {
  const base = sufficiency.without_experts;
  const whole = graph.value - base;
  const share = (value: number) => (whole === 0 ? "–" : percent((value - base) / whole));
  const change = (value: number) => formatSigned(value - base, 2);
  const predictions = levelOf(experts);
  const isBeyondChance = (sufficiency.mean - sufficiency.control) * Math.sign(whole) > 0;
  const kept = whole === 0 ? 0 : (sufficiency.mean - base) / whole;
  const explains = isBeyondChance
    ? `explain ${kept >= MOST ? "most" : kept >= PART ? "part" : "little"} of the prediction`
    : "alone do no more than random ones";
  return {
    level: predictions === "good" && (!isBeyondChance || kept < PART) ? "weak" : predictions,
    claim:
      predictions === "bad"
        ? "Do not rely on this circuit: its predictions do not hold"
        : `The ${experts.count} shown experts ${explains}`,
    figures: [
      { name: `All ${formatCount(graph.active)} experts`, value: change(graph.value) },
      { name: `The ${experts.count} shown alone`, value: change(sufficiency.mean), note: share(sufficiency.mean) },
      {
        name: `${experts.count} random ones alone`,
        value: change(sufficiency.control),
        note: share(sufficiency.control),
      },
      { name: "Predicted, measured", value: correlationText(experts.correlation) },
    ],
    details: [
      {
        name: "Single experts",
        value: `${percent(experts.same_sign ?? 0)} as predicted`,
        note: `direction of ${experts.count}; largest miss ${formatFixed(experts.largest_miss ?? 0, 2)}`,
      },
      {
        name: "All together",
        value: formatSigned(joint.measured, 2),
        note: `sum of the predictions ${formatSigned(joint.predicted, 2)}`,
      },
      { name: "Edges", value: correlationText(between.correlation), note: `${between.count} between experts` },
      {
        name: "Others at random strengths",
        value: share(sufficiency.random_mean),
        note: `worst of ${sufficiency.draws} draws ${share(sufficiency.random_worst)}`,
      },
      {
        name: "circuit-tracer scores",
        value: formatFixed(scores.completeness, 2),
        note: `[completeness](/glossary#circuit_scores); [replacement](/glossary#circuit_scores) ${formatFixed(scores.replacement, 2)}`,
      },
    ],
  };
}

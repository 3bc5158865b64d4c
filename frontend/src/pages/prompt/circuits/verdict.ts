/** What a check says about a circuit, in a line and some figures. */

import type { CircuitCheck, CircuitGraph } from "@/api/types";
import { formatCount, formatFixed, formatSigned } from "@/lib/text/format";

/** Limits of the headline. They are conventions of MxD Explorer, and are stated in the glossary. */
const GOOD = { correlation: 0.9, sameSign: 0.8 };
const WEAK = { correlation: 0.6, sameSign: 0.65 };

export interface Figure {
  readonly name: string;
  readonly value: string;
  readonly note: string;
}

export interface Verdict {
  readonly level: "good" | "weak" | "bad";
  readonly headline: string;
  /** How much the shown experts do, in a sentence. */
  readonly amount: string;
  readonly figures: readonly Figure[];
}

const percent = (share: number) => `${formatFixed(100 * share, 0)}\u00a0%`;

function levelOf({ correlation, same_sign: sameSign }: CircuitCheck["experts"]): Verdict["level"] {
  const reaches = (limits: typeof GOOD) =>
    (correlation ?? -1) >= limits.correlation && (sameSign ?? 0) >= limits.sameSign;
  return reaches(GOOD) ? "good" : reaches(WEAK) ? "weak" : "bad";
}

const HEADLINES = {
  good: "The predictions hold",
  weak: "The predictions hold roughly",
  bad: "Do not rely on the predictions",
};

export function verdict(graph: CircuitGraph, check: CircuitCheck): Verdict {
  const { experts, between, joint, sufficiency, scores } = check;
  const whole = graph.value - sufficiency.without_experts;
  const share = (value: number) => (whole === 0 ? "–" : percent((value - sufficiency.without_experts) / whole));
  const holds = levelOf(experts);
  const suffice = (sufficiency.mean - sufficiency.control) * Math.sign(whole) > 0;
  const level = holds === "good" && !suffice ? "weak" : holds;
  const addition = holds === "bad" || suffice ? "" : ", but the shown experts alone do no more than random ones";
  const r = experts.correlation === null ? "too few for r" : `r = ${formatFixed(experts.correlation, 2)}`;
  const figures: Figure[] = [
    {
      name: "Single experts",
      value: r,
      note: `${percent(experts.same_sign ?? 0)} of ${experts.count} in the predicted direction; largest miss ${formatFixed(experts.largest_miss ?? 0, 2)}`,
    },
    {
      name: "All together",
      value: formatSigned(joint.measured, 2),
      note: `sum of the predictions ${formatSigned(joint.predicted, 2)}`,
    },
    {
      name: "Edges",
      value: between.correlation === null ? "too few for r" : `r = ${formatFixed(between.correlation, 2)}`,
      note: `${between.count} between experts`,
    },
    {
      name: "Shown experts alone",
      value: share(sufficiency.mean),
      note: `of the effect of all ${graph.active} experts remains; with as many random experts ${share(sufficiency.control)}; others at random strengths ${share(sufficiency.random_mean)}, worst of ${sufficiency.draws} draws ${share(sufficiency.random_worst)}`,
    },
    {
      name: "circuit-tracer scores",
      value: formatFixed(scores.completeness, 2),
      note: `[completeness](/glossary#circuit_scores); [replacement](/glossary#circuit_scores) ${formatFixed(scores.replacement, 2)}`,
    },
  ];
  const shown = `${experts.count} of ${formatCount(graph.active)} active experts`;
  const kept = (sufficiency.mean - sufficiency.without_experts) / whole;
  const change = (value: number) => formatSigned(value - sufficiency.without_experts, 2);
  // A share of a small sum of large effects of both signs says little.
  const amount =
    kept >= 0 && kept <= 1
      ? `${shown} do ${share(sufficiency.mean)} of what all do together, as many random ones ${share(sufficiency.control)}.`
      : `${shown} alone change the target by ${change(sufficiency.mean)}, all together by ${formatSigned(whole, 2)}, as many random ones by ${change(sufficiency.control)}.`;
  return { level, headline: HEADLINES[holds] + addition, amount, figures };
}

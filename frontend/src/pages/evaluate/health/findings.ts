/** What an evaluation says about the use of a run's experts, and what to do about it. */

import type { EvaluationSummary } from "@/api/types";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

export interface Finding {
  readonly level: "good" | "act";
  /** Measured value with its sample. */
  readonly title: string;
  readonly advice: string;
  /** A list of experts to look at. */
  readonly experts?: { readonly label: string; readonly params: Readonly<Record<string, string>> };
  readonly command?: string;
}

interface TrainedRun {
  readonly name: string;
  readonly language_model: string;
  readonly layer: number;
  readonly text: string;
  readonly k: number;
  readonly num_experts: number;
}

const MAX_DEAD = 0.1;
const MAX_DENSITY = 0.5;
const MAX_DUPLICATES = 0.05;
/** Mean share of the full rank. */
const MIN_RANK = 0.95;
const MIN_EFFECTIVE = 0.25;
/** Factor between the tokens of an evaluation and those that are suggested for the next one. */
const MORE_TOKENS = 4;

interface Evaluated {
  readonly run: TrainedRun;
  readonly numExperts: number;
  readonly tokens: number;
  readonly text: string;
  /** Null if it was not measured. */
  readonly stableRank: number | null;
}

function trainCommand({ language_model, layer, text, k }: TrainedRun, flags: string): string {
  return `mxd train ${language_model} --layer ${layer} --dataset ${text} --k ${k} ${flags}`;
}

const fewerExperts = ({ run, numExperts }: Evaluated) =>
  trainCommand(run, `--num-experts ${Math.max(1, Math.round(numExperts / 2))}`);
const balanced = ({ run }: Evaluated) => trainCommand(run, "--load-balance-weight 0.01");

function dead(share: number, evaluated: Evaluated): Finding {
  const title = `${formatPercent(share, 1)} % of the experts are dead`;
  const experts = { label: "Rarest experts", params: { sort: "density", order: "asc" } };
  const more = `mxd evaluate ${evaluated.run.name} --dataset ${evaluated.text} --tokens ${MORE_TOKENS * evaluated.tokens}`;
  if (share <= MAX_DEAD) {
    const advice = "They were active on none of these tokens. Rare experts need more tokens to be seen.";
    return { level: "good", title, advice, experts, command: more };
  }
  const advice = "Evaluate on more tokens first. If the share stays high, train with fewer experts.";
  return { level: "act", title, advice, experts, command: `${more}\n${fewerExperts(evaluated)}` };
}

function densest(share: number, evaluated: Evaluated): Finding {
  const title = `The most used expert is active on ${formatPercent(share, 1)} % of the tokens`;
  const experts = { label: "Densest experts", params: { sort: "density", order: "desc" } };
  if (share <= MAX_DENSITY) return { level: "good", title, advice: "No expert is active on most tokens.", experts };
  const advice =
    "It says little about any one token. Hide it in Routing by its density, or balance the load in training.";
  return { level: "act", title, advice, experts, command: balanced(evaluated) };
}

function load(effective: number, evaluated: Evaluated): Finding {
  const title = `The load is spread as evenly as over ${formatCount(effective)} equally used experts, of ${formatCount(evaluated.numExperts)}`;
  if (effective >= MIN_EFFECTIVE * evaluated.numExperts) {
    return { level: "good", title, advice: "At least a quarter of the experts share the activations." };
  }
  const advice = "Few experts do most of the work. Try balancing the load in training.";
  return { level: "act", title, advice, command: balanced(evaluated) };
}

function duplicates(share: number, evaluated: Evaluated): Finding {
  const title = `${formatPercent(share, 1)} % of the experts have a near-duplicate`;
  if (share <= MAX_DUPLICATES) return { level: "good", title, advice: "Hardly any expert repeats another." };
  const advice = "Several experts do the same. Try fewer experts.";
  return { level: "act", title, advice, command: fewerExperts(evaluated) };
}

function rank(share: number, { stableRank }: Evaluated): Finding {
  const title = `The experts’ matrices have ${formatPercent(share, 1)} % of the full rank, on average`;
  const stable =
    stableRank === null
      ? ""
      : ` Their stable rank is ${formatFixed(stableRank, 1)}: few directions hold most of each matrix.`;
  if (share >= MIN_RANK)
    return { level: "good", title, advice: `Experts are full linear maps, or nearly so.${stable}` };
  const advice = "Some experts write to few output directions. Storing a layer in 8 bits can cause this.";
  return { level: "act", title, advice };
}

const RULES: Readonly<Record<string, (value: number, evaluated: Evaluated) => Finding>> = {
  "Dead experts": dead,
  "Highest density": densest,
  "Effective experts": load,
  "Near-duplicate experts": duplicates,
  "Normalised rank": rank,
};

/** Findings that call for an action come first. */
export function findings(
  { health, tokens, text }: Pick<EvaluationSummary, "health" | "tokens" | "text">,
  run: TrainedRun,
): readonly Finding[] {
  const stableRank = health.find(({ name }) => name === "Stable rank")?.value ?? null;
  const evaluated = { run, numExperts: run.num_experts, tokens, text, stableRank };
  return health
    .flatMap(({ name, value }) => {
      const rule = RULES[name];
      return rule === undefined || value === null ? [] : [rule(value, evaluated)];
    })
    .sort((a, b) => Number(a.level === "good") - Number(b.level === "good"));
}

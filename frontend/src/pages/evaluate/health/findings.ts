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
  readonly method: string;
  readonly text: string;
  readonly target_tokens: number;
  readonly k: number;
  readonly num_experts: number;
  readonly indexed_tokens: number | null;
  readonly active_experts: number | null;
}

/** Conventions: values beyond these call for an action. */
const MAX_INACTIVE = 0.1;
const MAX_DENSITY = 0.5;
const MAX_DUPLICATES = 0.05;
/** Mean share of the full rank. */
const MIN_RANK = 0.95;
const MIN_EFFECTIVE = 0.25;
/** Activations of an average expert in a sample, below which inactive experts may only be rare. */
const ENOUGH_ACTIVATIONS = 1000;

interface Evaluated {
  readonly run: TrainedRun;
  readonly tokens: number;
  readonly text: string;
  /** Null if it was not measured. */
  readonly stableRank: number | null;
  /** What the metric was measured on, such as `a random sample of 32 of 4,096 experts`. */
  readonly sample: string;
}

/** The sample of a metric as a sentence. */
const measuredOn = ({ sample }: Evaluated) => (sample === "" ? "" : ` Measured on ${sample}.`);
const limit = (share: number) => `${100 * share} %`;
const atMost = (share: number) => `Nothing to change: the upper limit is ${limit(share)}.`;
const atLeast = (share: number) => `Nothing to change: the lower limit is ${limit(share)}.`;

function trainCommand(run: TrainedRun, experts: number, flags = ""): string {
  const { language_model: model, layer, method, text, target_tokens: tokens, k } = run;
  return `mxd train ${model} --layer ${layer} --method ${method} --num-experts ${experts} --k ${k} --dataset ${text} --tokens ${tokens || "2M"}${flags}`;
}

const fewerExperts = ({ run }: Evaluated) => trainCommand(run, Math.max(1, Math.round(run.num_experts / 2)));
const balanced = ({ run }: Evaluated) => trainCommand(run, run.num_experts, " --load-balance-weight 0.01");

/** Tokens on which an average expert is active enough to call an inactive one dead. */
function enoughTokens({ k, num_experts: count }: TrainedRun): number {
  return Math.ceil((ENOUGH_ACTIVATIONS * count) / k / 100_000) * 100_000;
}

/** The share of inactive experts on the larger sample: the index, or else the evaluated text. */
function inactive(share: number, evaluated: Evaluated): Finding {
  const { run, tokens } = evaluated;
  const isIndexed = run.active_experts !== null && run.indexed_tokens !== null && run.indexed_tokens > tokens;
  const [active, sample] = isIndexed
    ? [run.active_experts, run.indexed_tokens]
    : [Math.round((1 - share) * run.num_experts), tokens];
  const count = run.num_experts - active;
  const average = (sample * run.k) / run.num_experts;
  const kind = average < ENOUGH_ACTIVATIONS ? "inactive" : "dead";
  const title = `${formatCount(count)} of ${formatCount(run.num_experts)} experts (${formatPercent(count / run.num_experts, 1)} %) are ${kind}`;
  const where = `They are active on none of the ${formatCount(sample)} ${isIndexed ? "indexed" : "evaluated"} tokens; an expert of average use is active on ${formatCount(average)}.`;
  const other = isIndexed
    ? ` On the ${formatCount(tokens)} evaluated tokens alone, ${formatPercent(share, 1)} % are inactive.`
    : "";
  const experts = { label: "Rarest active experts", params: { sort: "density", order: "asc" } };
  if (kind === "inactive")
    return {
      level: "good",
      title,
      advice: `${where} The sample is too small to call them dead. For a larger one, run:`,
      experts,
      command: `mxd index ${run.name} --dataset ${run.text} --tokens ${enoughTokens(run)}`,
    };
  if (count / run.num_experts <= MAX_INACTIVE) {
    const reading = ` ${atMost(MAX_INACTIVE)} The rarest active experts have few examples, so read their labels with care.`;
    return { level: "good", title, advice: where + other + reading, experts };
  }
  const advice = `${where}${other} More than ${limit(MAX_INACTIVE)} of the parameters are unused. Train with fewer experts:`;
  return { level: "act", title, advice, experts, command: fewerExperts(evaluated) };
}

function densest(share: number, evaluated: Evaluated): Finding {
  const title = `The most used expert is active on ${formatPercent(share, 1)} % of ${formatCount(evaluated.tokens)} tokens`;
  const experts = { label: "Densest experts", params: { sort: "density", order: "desc" } };
  if (share <= MAX_DENSITY)
    return {
      level: "good",
      title,
      advice: `${atMost(MAX_DENSITY)} The densest ones say least about any one token; in Routing, filter them out by density.`,
      experts,
    };
  const advice =
    "It says little about any one token. Hide it in Routing by its density, or balance the load in training:";
  return { level: "act", title, advice, experts, command: balanced(evaluated) };
}

function load(effective: number, evaluated: Evaluated): Finding {
  const { run, tokens } = evaluated;
  const title = `Effective number of experts: ${formatCount(effective)} of all ${formatCount(run.num_experts)}`;
  const meaning = `The entropy of the load is that of so many equally used experts. On only ${formatCount(tokens)} tokens it tends to be too low, because rare experts are missed.`;
  if (effective >= MIN_EFFECTIVE * run.num_experts) {
    return { level: "good", title, advice: `${meaning} ${atLeast(MIN_EFFECTIVE)}` };
  }
  const advice = `${meaning} Few experts do most of the work: fewer than ${limit(MIN_EFFECTIVE)} count. Balance the load in training:`;
  return { level: "act", title, advice, command: balanced(evaluated) };
}

function duplicates(share: number, evaluated: Evaluated): Finding {
  const sampled = Number(/[\d,]+/.exec(evaluated.sample)?.[0].replaceAll(",", "") ?? 0);
  const title =
    sampled > 0
      ? `${formatCount(share * sampled)} of ${formatCount(sampled)} sampled experts (${formatPercent(share, 1)} %) have a near-duplicate`
      : `${formatPercent(share, 1)} % of the experts have a near-duplicate`;
  if (share <= MAX_DUPLICATES)
    return {
      level: "good",
      title,
      advice: `${measuredOn(evaluated).trim()} ${atMost(MAX_DUPLICATES)}`.trim(),
    };
  const advice = `More than ${limit(MAX_DUPLICATES)} repeat another.${measuredOn(evaluated)} Train with fewer experts:`;
  return { level: "act", title, advice, command: fewerExperts(evaluated) };
}

function rank(share: number, evaluated: Evaluated): Finding {
  const { stableRank } = evaluated;
  const title = `The experts’ matrices have ${formatPercent(share, 1)} % of the full rank`;
  const stable =
    stableRank === null
      ? ""
      : ` Their stable rank is ${formatFixed(stableRank, 1)}: few output directions hold most of each matrix.`;
  const measured = measuredOn(evaluated);
  if (share >= MIN_RANK)
    return {
      level: "good",
      title,
      advice: `${atLeast(MIN_RANK)} Experts are full linear maps, or nearly so.${stable}${measured}`,
    };
  const advice = `Some experts write to few output directions, which storing a layer in 8 bits can cause.${stable}${measured}`;
  return { level: "act", title, advice };
}

const RULES: Readonly<Record<string, (value: number, evaluated: Evaluated) => Finding>> = {
  "Inactive experts": inactive,
  "Highest density": densest,
  "Effective experts": load,
  "Near-duplicate experts": duplicates,
  "Normalised rank": rank,
};

/** The sample at the end of a description; empty if there is none. */
const sampleOf = (description: string) => /(?:a random sample of|all) [\d,]+ .*experts.*$/.exec(description)?.[0] ?? "";

/** Findings that call for an action come first. */
export function findings(
  { health, tokens, text }: Pick<EvaluationSummary, "health" | "tokens" | "text">,
  run: TrainedRun,
): readonly Finding[] {
  const stableRank = health.find(({ name }) => name === "Stable rank")?.value ?? null;
  return health
    .flatMap(({ name, value, description }) => {
      const rule = RULES[name];
      if (rule === undefined || value === null) return [];
      return [rule(value, { run, tokens, text, stableRank, sample: sampleOf(description) })];
    })
    .sort((a, b) => Number(a.level === "good") - Number(b.level === "good"));
}

/** What an evaluation says about the use of a run's experts, and what to do about it. */

import type { EvaluationSummary } from "@/api/types";
import { inUnits } from "@/components/runs/run-labels";
import { type RunConfig, trainCommand, type TrainedRun } from "@/components/runs/train-command";
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

interface IndexedRun extends TrainedRun {
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
  readonly run: IndexedRun;
  /** Settings of the run; empty while they load. */
  readonly config: RunConfig;
  readonly tokens: number;
  /** Null if it was not measured. */
  readonly stableRank: number | null;
  readonly smallestScaling: number | null;
  /** What the metric was measured on, such as `a random sample of 32 of 4,096 experts`. */
  readonly sample: string;
  /** Rounding of the stored weights, such as `rounded to 5 bits`; empty for those of the training. */
  readonly rounding: string;
}

/** The sample of a metric as a sentence. */
const measuredOn = ({ sample }: Evaluated) => (sample === "" ? "" : ` Measured on ${sample}.`);
const limit = (share: number) => `${100 * share} %`;
const upperLimit = (share: number) => `(upper limit ${limit(share)})`;
const lowerLimit = (share: number) => `(lower limit ${limit(share)})`;

function fewerExperts({ run, config }: Evaluated): string {
  const count = Math.max(1, Math.round(run.num_experts / 2));
  return trainCommand(run, config, { "--name": `${run.name}-n${count}`, "--num-experts": String(count) });
}

const BALANCE_SETTING = "regularization.load_balance_weight";

/** The first weight to try, or ten times that of the run. */
function balanced({ run, config }: Evaluated): string {
  const weight = 10 * Number(config[BALANCE_SETTING] ?? 0) || 0.01;
  return trainCommand(run, config, { "--name": `${run.name}-balanced`, "--load-balance-weight": String(weight) });
}

const FEWER = "Train with half the experts and otherwise the same settings:";
const BALANCE = "balance the load in training. The command changes only the load-balance weight:";

/** Tokens on which an average expert is active enough to call an inactive one dead. */
function enoughTokens({ k, num_experts: count }: IndexedRun): number {
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
  const title = `${formatCount(count)} of ${formatCount(run.num_experts)} experts are ${kind}: ${formatPercent(count / run.num_experts, 1)} %`;
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
    const reading = " The rarest active experts have few examples, so read their labels with care.";
    return { level: "good", title: `${title} ${upperLimit(MAX_INACTIVE)}`, advice: where + other + reading, experts };
  }
  const advice = `${where}${other} Their parameters are unused. ${FEWER}`;
  return {
    level: "act",
    title: `${title} ${upperLimit(MAX_INACTIVE)}`,
    advice,
    experts,
    command: fewerExperts(evaluated),
  };
}

function densest(share: number, evaluated: Evaluated): Finding {
  const title = `The most used expert is active on ${formatPercent(share, 1)} % of ${formatCount(evaluated.tokens)} tokens ${upperLimit(MAX_DENSITY)}`;
  const experts = { label: "Densest experts", params: { sort: "density", order: "desc" } };
  if (share <= MAX_DENSITY)
    return {
      level: "good",
      title,
      advice: "The densest experts say least about any one token. In Routing, filter them out by density.",
      experts,
    };
  const advice = `It says little about any one token. Hide it in Routing by its density, or ${BALANCE}`;
  return { level: "act", title, advice, experts, command: balanced(evaluated) };
}

function load(effective: number, evaluated: Evaluated): Finding {
  const { run, tokens } = evaluated;
  const title = `Effective number of experts: ${formatCount(effective)} of ${formatCount(run.num_experts)}, ${formatPercent(effective / run.num_experts, 1)} % ${lowerLimit(MIN_EFFECTIVE)}`;
  const meaning = `The entropy of the load is that of so many equally used experts. On only ${formatCount(tokens)} tokens it tends to be too low, because rare experts are missed.`;
  if (effective >= MIN_EFFECTIVE * run.num_experts) {
    return { level: "good", title, advice: meaning };
  }
  const advice = `${meaning} Few experts do most of the work: ${BALANCE}`;
  return { level: "act", title, advice, command: balanced(evaluated) };
}

function duplicates(share: number, evaluated: Evaluated): Finding {
  const sampled = Number(/[\d,]+/.exec(evaluated.sample)?.[0].replaceAll(",", "") ?? 0);
  const kind = sampled === evaluated.run.num_experts ? "experts" : "sampled experts";
  const found =
    sampled > 0
      ? `${formatCount(share * sampled)} of ${formatCount(sampled)} ${kind} have a near-duplicate: ${formatPercent(share, 1)} %`
      : `${formatPercent(share, 1)} % of the experts have a near-duplicate`;
  const title = `${found} ${upperLimit(MAX_DUPLICATES)}`;
  if (share <= MAX_DUPLICATES) return { level: "good", title, advice: measuredOn(evaluated).trim() };
  const advice = `${measuredOn(evaluated).trim()} ${FEWER}`.trim();
  return { level: "act", title, advice, command: fewerExperts(evaluated) };
}

/** What the matrices lack, and on which weights it was measured. */
function rankDetails({ stableRank, smallestScaling, rounding }: Evaluated): string {
  const stable =
    stableRank === null
      ? ""
      : ` Their stable rank is ${formatFixed(stableRank, 1)}: few output directions hold most of each matrix.`;
  const zero =
    smallestScaling === 0 ? " The smallest scaling entry |c| is 0: at least one expert lacks an output dimension." : "";
  const weights =
    rounding === "" ? "" : ` The weights are ${rounding} in storage, so small values differ from those in training.`;
  return stable + zero + weights;
}

function rank(share: number, evaluated: Evaluated): Finding {
  const title = `The experts’ matrices have ${formatPercent(share, 1)} % of the full rank ${lowerLimit(MIN_RANK)}`;
  const [level, meaning] =
    share >= MIN_RANK
      ? (["good", "Experts are full linear maps, or nearly so."] as const)
      : (["act", "Some experts write to few output directions."] as const);
  return { level, title, advice: meaning + rankDetails(evaluated) + measuredOn(evaluated) };
}

const RULES: Readonly<Record<string, (value: number, evaluated: Evaluated) => Finding>> = {
  "Inactive experts": inactive,
  "Highest density": densest,
  "Effective experts": load,
  "Near-duplicate experts": duplicates,
  "Normalised rank": rank,
};

/** The sample in a description; empty if there is none. */
const sampleOf = (description: string) =>
  /(?:a random sample of|all) [\d,]+ [^;]*experts[^;]*/.exec(description)?.[0] ?? "";
const roundingOf = (description: string) => /rounded to \d+ bits/.exec(description)?.[0] ?? "";

/** The finding in the words of the run's method. */
const ofUnits = ({ experts, ...found }: Finding, run: IndexedRun): Finding => ({
  ...found,
  title: inUnits(found.title, run),
  advice: inUnits(found.advice, run),
  ...(experts && { experts: { ...experts, label: inUnits(experts.label, run) } }),
});

/** Findings that call for an action come first. */
export function findings(
  { health, tokens }: Pick<EvaluationSummary, "health" | "tokens" | "text">,
  run: IndexedRun,
  config: RunConfig = {},
): readonly Finding[] {
  const valueOf = (metric: string) => health.find(({ name }) => name === metric)?.value ?? null;
  const shared = { run, config, tokens, stableRank: valueOf("Stable rank"), smallestScaling: valueOf("Smallest |c|") };
  return health
    .flatMap(({ name, value, description }) => {
      const rule = RULES[name];
      if (rule === undefined || value === null) return [];
      const evaluated = { ...shared, sample: sampleOf(description), rounding: roundingOf(description) };
      return [ofUnits(rule(value, evaluated), run)];
    })
    .sort((a, b) => Number(a.level === "good") - Number(b.level === "good"));
}

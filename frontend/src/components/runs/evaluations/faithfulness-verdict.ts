/** The main results of an evaluation, each with its interval and its meaning. */

import type { Fact } from "@/api/types";
import { CONTINUATIONS, formatFact, formatInterval } from "@/components/runs/facts";
import type { TermId } from "@/lib/text/glossary";

export interface Finding {
  readonly name: string;
  readonly term: TermId;
  readonly value: string;
  /** Empty if it was not computed. */
  readonly interval: string;
  readonly meaning: string;
}

/** Share of prompts whose greedy continuation is the same for a number of tokens. */
export interface EqualFor extends Fact {
  readonly tokens: number;
  readonly value: number;
}

const named = (facts: readonly Fact[], name: string) => facts.find((fact) => fact.name === name);
const onOneLine = (text: string) => text.replaceAll(" ", "\u00a0");
const units = ({ value, unit }: Fact) => onOneLine(`${formatFact(value, unit)}${unit === "nats" ? " nats" : ""}`);

const intervalOf = (fact: Fact) => formatInterval(fact).replace(" %", "\u00a0%");

/** By length; empty if no prompt was continued. */
export function continuations(facts: readonly Fact[]): readonly EqualFor[] {
  return facts.flatMap((fact) => {
    if (fact.group !== CONTINUATIONS || fact.value === null) return [];
    return [{ ...fact, value: fact.value, tokens: Number(/\d+/.exec(fact.name)?.[0] ?? 1) }];
  });
}

function lossIncrease(facts: readonly Fact[]): Omit<Finding, "name" | "term"> | null {
  const fact = named(facts, "Loss increase");
  const [original, zeroed] = [named(facts, "Loss, original"), named(facts, "Loss increase, MLP zero-ablated")];
  if (fact === undefined || original === undefined || zeroed === undefined) return null;
  return {
    value: `${formatFact(fact.value, fact.unit)} nats per token`,
    interval: intervalOf(fact),
    meaning: `The original model’s loss is ${units(original)}. Zero-ablating the MLP adds ${units(zeroed)}.`,
  };
}

function lossRecovered(facts: readonly Fact[]): Omit<Finding, "name" | "term"> | null {
  const fact = named(facts, "Loss recovered vs zero ablation");
  if (fact === undefined) return null;
  const mean = named(facts, "Loss recovered vs mean ablation");
  const other = mean === undefined ? "" : ` Relative to mean ablation: ${units(mean)} (${intervalOf(mean)}).`;
  return {
    value: units(fact),
    interval: intervalOf(fact),
    meaning: `Relative to zero ablation: 0 % is a model without this MLP, 100 % is the original model.${other}`,
  };
}

/** Below this share, most of the layer's effect does not depend on its experts. */
const LOW_ROUTING_SHARE = 0.5;

/** What a share of 1 or more says: how the frozen layer compares with the MLP's mean output. */
const worseThanMean = ({ value, low }: Fact) =>
  `${(low ?? value ?? 0) > 1 ? "worse" : "no better"} than the MLP’s mean output`;

/** What remains of the layer with frozen mixing. */
function routingMeaning(fact: Fact, share: number): string {
  if (share >= 1) return `the layer predicts ${worseThanMean(fact)}.`;
  return share < LOW_ROUTING_SHARE
    ? "most of the layer’s effect remains. It does not depend on which experts are active."
    : "most of the layer’s effect is lost. It depends on which experts are active.";
}

/** A skip path was trained beside active features, so that frozen features do not show its own contribution. */
const SKIP_PATH = " This share does not measure what the skip path adds.";

interface RoutingShare extends Omit<Finding, "term"> {
  readonly share: number;
  /** How the layer predicts with frozen mixing, for a share of 1 or more. */
  readonly frozen: string;
}

/** The strict share, with the one whose mixing is frozen at its median behind it; only the latter if that is all. */
function routingShare(facts: readonly Fact[], hasSkip = false): RoutingShare | null {
  const [strict, median] = [named(facts, "Strict routing share"), named(facts, "Routing share")];
  const fact = strict?.value == null ? median : strict;
  if (fact?.value == null) return null;
  const constant = fact === median ? "median" : "best constant";
  const skip = hasSkip && fact.value >= 1 ? SKIP_PATH : "";
  const other =
    median?.value == null || fact === median ? "" : ` Frozen at the median: ${units(median)} (${intervalOf(median)}).`;
  return {
    name: fact.name,
    share: fact.value,
    frozen: `With its mixing frozen at its ${constant}, it predicts ${worseThanMean(fact)}.`,
    value: units(fact),
    interval: intervalOf(fact),
    meaning: `With the mixing frozen at its ${constant}, ${routingMeaning(fact, fact.value)}${skip}${other}`,
  };
}

/** Below this number, a share has an interval of 20 percentage points or more. */
const FEW_PROMPTS = 100;

/** Number of prompts that were continued; null if the description does not state it. */
function promptsOf({ description }: Fact): number | null {
  const text = /of ([\d,]+) prompts/.exec(description)?.[1];
  return text === undefined ? null : Number(text.replaceAll(",", ""));
}

/** `6 of 32 prompts`, because a share of few prompts looks more exact than it is. */
function promptShare(fact: EqualFor): string {
  const prompts = promptsOf(fact);
  return prompts === null ? units(fact) : `${Math.round(fact.value * prompts)} of ${prompts} prompts`;
}

function longestContinuation(facts: readonly Fact[]): Omit<Finding, "name" | "term"> | null {
  const fact = continuations(facts).at(-1);
  if (fact === undefined) return null;
  const isSmall = (promptsOf(fact) ?? FEW_PROMPTS) < FEW_PROMPTS ? " So few prompts give wide intervals." : "";
  return {
    value: `${promptShare(fact)} at ${fact.tokens} tokens`,
    interval: intervalOf(fact),
    meaning: `${fact.description.replace(/^s/, "S")}.${isSmall} By number of tokens:`,
  };
}

/** What was measured of loss increase, loss recovered, routing share and continuations. */
export function findings(facts: readonly Fact[], hasSkip = false): readonly Finding[] {
  const all = [
    { name: "Loss increase", term: "loss_increase_of_run", found: lossIncrease(facts) },
    { name: "Loss recovered", term: "loss_recovered", found: lossRecovered(facts) },
    { name: "Routing share", term: "strict_routing_share", found: routingShare(facts, hasSkip) },
    { name: "Equal continuations", term: "continuations", found: longestContinuation(facts) },
  ] as const;
  return all.flatMap(({ found, ...title }) => (found === null ? [] : [{ ...title, ...found }]));
}

/** The verdict in one sentence, whose figures have their intervals beside it; empty if the loss was not measured. */
export function faithfulnessVerdict(run: string, facts: readonly Fact[]): string {
  const kept = named(facts, "Loss recovered vs zero ablation");
  if (kept === undefined) return "";
  const routing = routingShare(facts);
  const recovers = `${run} recovers ${units(kept)} of the loss that zero-ablating the MLP adds`;
  if (routing === null) return `${recovers}.`;
  return routing.share < 1
    ? `${recovers}, and ${routing.value} of its effect depends on routing.`
    : `${recovers}. ${routing.frozen}`;
}

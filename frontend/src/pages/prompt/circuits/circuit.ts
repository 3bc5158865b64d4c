/** A circuit: its parameters in the URL, the names and order of its nodes, and what a check says about it. */

import type { CircuitCheck, CircuitGraph, CircuitNode, CircuitResponse, CircuitTarget } from "@/api/types";
import { choiceParam, numberParam, type Param, textParam } from "@/hooks/use-url-state";
import { formatCount, formatFixed, formatSigned } from "@/lib/text/format";
import { isWholeWord } from "@/components/tokens/token-chip";
import { CIRCUIT_LIMITS } from "@/lib/text/glossary";
import { visibleText } from "@/lib/text/token-text";
import { FUNCTION_WORDS, type NamedInfo } from "@/pages/prompt/expert-name";
import { layersParam } from "@/pages/prompt/routing/routing-params";

export const MOST_PROBABLE: CircuitTarget = { kind: "token", token: null };

const isId = (text: string | undefined): text is string => text !== undefined && /^\d+$/.test(text);

/** `12`, `12-7`, `any:12,7`, `expert:RUN/31` or `text: a continuation`; null for the most probable token. */
export const targetParam: Param<CircuitTarget> = {
  read: (text) => {
    if (text === null) return MOST_PROBABLE;
    if (text.startsWith("text:")) return { kind: "continuation", text: text.slice(5) };
    const [, run, expert] = /^expert:(.+)\/(\d+)$/.exec(text) ?? [];
    if (run !== undefined && expert !== undefined) return { kind: "expert", run, expert: Number(expert) };
    if (text.startsWith("any:")) {
      const tokens = text.slice(4).split(",").filter(isId).map(Number);
      return tokens.length === 0 ? MOST_PROBABLE : { kind: "set", tokens };
    }
    const [token, other] = text.split("-");
    if (!isId(token)) return MOST_PROBABLE;
    if (!isId(other)) return { kind: "token", token: Number(token) };
    return { kind: "difference", token: Number(token), other: Number(other) };
  },
  write: (target) => {
    switch (target.kind) {
      case "token":
        return target.token == null ? null : String(target.token);
      case "difference":
        return `${target.token}-${target.other}`;
      case "set":
        return `any:${target.tokens.join(",")}`;
      case "continuation":
        return `text:${target.text}`;
      case "expert":
        return `expert:${target.run}/${target.expert}`;
    }
  },
};

export const CIRCUIT_PARAMS = {
  prompt: textParam(""),
  layers: layersParam,
  target: targetParam,
  /** Position after which the target is predicted; null for the last one. */
  at: numberParam(null, { min: 0 }),
  errors: choiceParam(["kept", "dropped"], "kept"),
  nodes: numberParam(20, { min: 1, max: 100 }),
  /** Index of the selected node. */
  node: numberParam(1, { min: 0 }),
};

const isWord = (text: string) => /[\p{L}\p{N}]/u.test(text);

/** A word with a meaning of its own, and no part of one. */
const isContent = (text: string) => isWholeWord(text) && !FUNCTION_WORDS.has(text.trim().toLowerCase());
/** Least probability of such a word that is explained in place of a function word, relative to that one's. */
const MIN_RELATIVE = 0.1;
/** Tokens before the end among which the last word with a meaning is looked for. */
const MAX_BACK = 8;
/** Likely next tokens that are shown. */
export const SHOWN = 5;

interface ReadText {
  readonly tokens: readonly Pick<CircuitGraph["tokens"][number], "id" | "text" | "start">[];
  /** Likely next tokens, the likeliest first. */
  readonly candidates: readonly Pick<CircuitGraph["candidates"][number], "id" | "text" | "probability">[];
}

/**
 * What is explained if nothing is chosen: of a text that ends with punctuation or white space, its last word with a
 * meaning of its own; else the likeliest next word with one. Null for the likeliest token.
 */
export function defaultTarget({ tokens, candidates }: ReadText): { token: number; position: number | null } | null {
  const end = tokens.findLastIndex(({ text, start }) => !start && isWord(text));
  if (end < tokens.length - 1 && end > 1) {
    const word = tokens.findLastIndex(({ text }, i) => i > 1 && i > end - MAX_BACK && i <= end && isContent(text));
    const position = word === -1 ? end : word;
    const token = tokens[position]?.id;
    return token === undefined ? null : { token, position: position - 1 };
  }
  const words = candidates.filter(({ text }) => isWord(text));
  const least = MIN_RELATIVE * (words[0]?.probability ?? 0);
  const chosen = words.find(({ text, probability }) => probability >= least && isContent(text)) ?? words[0];
  return chosen !== undefined && chosen !== candidates[0] ? { token: chosen.id, position: null } : null;
}

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
}

/** The target, then each layer before it, the last one first, with the indices of its experts, strongest first. */
export function graphRows({ nodes, layers: traced, runs, target }: CircuitGraph) {
  const end = target.kind === "expert" ? (traced[runs.indexOf(target.run)] ?? Infinity) : Infinity;
  const layers = new Set(traced.filter((layer) => layer < end));
  return [null, ...[...layers].sort((a, b) => b - a)].map((layer) => ({
    title: layer === null ? "Target" : `Layer ${layer}`,
    indices: [...nodes.keys()].filter((index) => nodes[index]?.layer === layer),
  }));
}

interface TokenRun {
  readonly positions: readonly number[];
  /** Whether it is a token with experts or the target. */
  readonly isNamed: boolean;
}

/** Each token with experts or the target by itself, and the others joined; without an unnamed start token. */
export function tokenRuns(graph: CircuitGraph): readonly TokenRun[] {
  const named = new Set(graph.nodes.map(({ position }) => position));
  const runs: TokenRun[] = [];
  graph.tokens.forEach(({ start }, position) => {
    const isNamed = named.has(position);
    if (start && !isNamed) return;
    const last = runs.at(-1);
    if (last === undefined || isNamed || last.isNamed) runs.push({ positions: [position], isNamed });
    else runs[runs.length - 1] = { ...last, positions: [...last.positions, position] };
  });
  return runs;
}

/** The information of a node's expert. */
export function expertInfo(response: CircuitResponse, node: CircuitNode): NamedInfo | undefined {
  return node.run === null || node.expert === null ? undefined : response.experts[node.run]?.[node.expert];
}

/** For example `Expert 560, layer 3, on ␣little`. */
export function nodeName({ graph }: CircuitResponse, node: CircuitNode): string {
  if (node.kind === "target") return `Target: ${graph.label}`;
  return `Expert ${node.expert}, layer ${node.layer}, on ${tokenText(graph, node.position)}`;
}

/** An ablation that lowers the target means that the node supports it. */
export const signClass = (change: number) => (change < 0 ? "up" : "down");

/** What an expert does to the target, from the change when it is ablated: `supports 0.47`, `opposes 0.77`. */
export function effectText(change: number, digits = 2): string {
  const size = formatFixed(Math.abs(change), digits);
  return Number(size) === 0 ? size : `${change < 0 ? "supports" : "opposes"} ${size}`;
}

interface Figure {
  readonly name: string;
  readonly value: string;
  readonly note: string;
}

export interface Verdict {
  readonly level: "good" | "weak" | "bad";
  /** What the shown experts do alone and whether the target needs them, in two sentences. */
  readonly claim: string;
  /** The three that the claim is about, and those that the predictions are checked by. */
  readonly figures: readonly Figure[];
  readonly checks: readonly Figure[];
}

const percent = (share: number) => (share < 0.005 ? "none" : `${formatFixed(100 * share, 0)}\u00a0%`);
const correlationText = (r: number | null) => (r === null ? "too few for r" : `r = ${formatFixed(r, 2)}`);

export function verdict(graph: CircuitGraph, { experts, between, joint, sufficiency, scores }: CircuitCheck): Verdict {
  const { without_experts: base, mean, control, draws } = sufficiency;
  const { good, weak, most, some } = CIRCUIT_LIMITS;
  const whole = graph.value - base;
  const shareOf = (change: number) => (whole === 0 ? 0 : change / whole);
  const [kept, random, lost] = [shareOf(mean - base), shareOf(control - base), shareOf(-joint.measured)];
  const reaches = (limits: typeof good) =>
    (experts.correlation ?? -1) >= limits.correlation && (experts.same_sign ?? 0) >= limits.sameSign;
  const isBeyondChance = kept > random;
  const target = graph.target.kind === "expert" ? "activation" : "prediction";
  const all = `${formatCount(graph.active)} active experts`;
  const sufficient = !isBeyondChance ? "not sufficient" : kept >= 1 - some ? "sufficient" : "sufficient in part";
  const necessary = lost >= most ? "necessary" : lost >= some ? "necessary in part" : "not necessary";
  const claim =
    `Kept alone, ${experts.count} of ${all} give ${formatSigned(mean - base)} of the ${formatSigned(whole)} that all ` +
    `experts add to the ${target}; ${experts.count} random ones give ${formatSigned(control - base)}. ` +
    `Ablated together, they change it by ${formatSigned(joint.measured)}: ${sufficient}, ${necessary}`;
  return {
    level: !reaches(weak) ? "bad" : reaches(good) && isBeyondChance && kept >= most ? "good" : "weak",
    claim: reaches(weak) ? claim : "Do not rely on this circuit: the model does not do what it predicts",
    figures: [
      {
        name: "Kept alone",
        value: formatSigned(mean - base),
        note: `${percent(kept)} of what all ${all} add (${formatSigned(whole)}); ${experts.count} random ones ${percent(random)}`,
      },
      {
        name: "Ablated together",
        value: formatSigned(joint.measured),
        note: `sum of the predictions ${formatSigned(joint.predicted)}`,
      },
      {
        name: "Replacement score",
        value: formatFixed(scores.replacement),
        note: `[influence that starts at tokens](/glossary#circuit_scores), not at errors; completeness ${formatFixed(scores.completeness)}`,
      },
    ],
    checks: [
      {
        name: "Single experts",
        value: `${percent(experts.same_sign ?? 0)} as predicted`,
        note: `direction of ${experts.count}; ${correlationText(experts.correlation)}, largest miss ${formatFixed(experts.largest_miss ?? 0)}`,
      },
      { name: "Edges", value: correlationText(between.correlation), note: `${between.count} between experts` },
      {
        name: "Others at random strengths",
        value: percent(shareOf(sufficiency.random_mean - base)),
        note: `worst of ${draws} draws ${percent(shareOf(sufficiency.random_worst - base))}`,
      },
    ],
  };
}

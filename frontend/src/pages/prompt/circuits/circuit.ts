/** A circuit: its parameters in the URL, the names of its nodes, and what a check says about it. */

import type { CircuitCheck, CircuitGraph, CircuitNode, CircuitResponse, CircuitTarget } from "@/api/types";
import { choiceParam, numberParam, type Param, textParam } from "@/hooks/use-url-state";
import { formatCount, formatFixed, formatSigned } from "@/lib/text/format";
import { CIRCUIT_LIMITS } from "@/lib/text/glossary";
import { visibleText } from "@/lib/text/token-text";
import type { NamedInfo } from "@/pages/prompt/expert-name";
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

/** Words that say little by themselves. */
const FUNCTION_WORDS = new Set(
  "a an the and or but of to in on at for with from by as that this it i he she they we you his her its their my is are was were be been had have has not so".split(
    " ",
  ),
);
/** Least probability of a word that is explained in place of a function word, relative to that one's. */
const MIN_RELATIVE = 0.5;
/** Likely next tokens that are shown. */
export const SHOWN = 5;

interface ReadText {
  readonly tokens: readonly Pick<CircuitGraph["tokens"][number], "id" | "text" | "start">[];
  /** Likely next tokens, the likeliest first. */
  readonly candidates: readonly Pick<CircuitGraph["candidates"][number], "id" | "text" | "probability">[];
}

/**
 * What is explained if nothing is chosen: of a text that ends with punctuation or white space, its last word; else the
 * likeliest of the shown words with a meaning of its own. Null for the likeliest token.
 */
export function defaultTarget({ tokens, candidates }: ReadText): { token: number; position: number | null } | null {
  const end = tokens.findLastIndex(({ text, start }) => !start && isWord(text));
  const token = tokens[end]?.id;
  if (end < tokens.length - 1 && end > 1 && token !== undefined) return { token, position: end - 1 };
  const words = candidates.slice(0, SHOWN).filter(({ text }) => isWord(text));
  const content = words.find(
    ({ text, probability }) =>
      probability >= MIN_RELATIVE * (words[0]?.probability ?? 0) && !FUNCTION_WORDS.has(text.trim().toLowerCase()),
  );
  const chosen = content ?? words[0];
  return chosen !== undefined && chosen !== candidates[0] ? { token: chosen.id, position: null } : null;
}

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
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
  /** How much of the target the shown experts explain, and what follows, in one sentence. */
  readonly claim: string;
  readonly figures: readonly Figure[];
}

/** Share of what all experts do, from which a graph is most of the explanation. */
const MOST = 2 / 3;
const percent = (share: number) => (share < 0.005 ? "none" : `${formatFixed(100 * share, 0)}\u00a0%`);
const correlationText = (r: number | null) => (r === null ? "too few for r" : `r = ${formatFixed(r, 2)}`);

export function verdict(graph: CircuitGraph, { experts, between, joint, sufficiency, scores }: CircuitCheck): Verdict {
  const { without_experts: base, mean, control } = sufficiency;
  const { good, weak, most } = CIRCUIT_LIMITS;
  const whole = graph.value - base;
  const share = (value: number) => (whole === 0 ? "–" : percent((value - base) / whole));
  const alone = (name: string, value: number): Figure => ({
    name,
    value: formatSigned(value - base, 2),
    note: `${share(value)} of what all do`,
  });
  const reaches = (limits: typeof good) =>
    (experts.correlation ?? -1) >= limits.correlation && (experts.same_sign ?? 0) >= limits.sameSign;
  const isBeyondChance = (mean - control) * Math.sign(whole) > 0;
  const isMost = isBeyondChance && (mean - base) / whole >= most;
  const target = graph.target.kind === "expert" ? "activation" : "prediction";
  const shown = `${experts.count} of ${formatCount(graph.active)} active experts`;
  const explained = `${shown} explain ${share(mean)} of what all add to the ${target} (${formatSigned(whole)}), ${experts.count} random ones ${share(control)}`;
  const claim = isMost
    ? `${explained}: the graph is ${(mean - base) / whole < MOST ? "about half" : "most"} of the explanation`
    : isBeyondChance
      ? `${explained}: the rest is spread over many others`
      : `Each effect is real, but ${shown} alone explain no more of the ${target} than random ones`;
  return {
    level: !reaches(weak) ? "bad" : reaches(good) && isMost ? "good" : "weak",
    claim: reaches(weak) ? claim : "Do not rely on this circuit: the model does not do what it predicts",
    figures: [
      { name: `All ${formatCount(graph.active)} experts`, value: formatSigned(whole, 2), note: "change of the target" },
      alone(`The ${experts.count} shown alone`, mean),
      alone(`${experts.count} random ones alone`, control),
      {
        name: "Single experts",
        value: `${percent(experts.same_sign ?? 0)} as predicted`,
        note: `direction of ${experts.count}; ${correlationText(experts.correlation)}, largest miss ${formatFixed(experts.largest_miss ?? 0, 2)}`,
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

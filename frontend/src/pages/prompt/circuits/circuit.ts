/** A circuit: its parameters in the URL, the names and order of its nodes, and what a check says about it. */

import type { CircuitCheck, CircuitGraph, CircuitNode, CircuitResponse, CircuitTarget } from "@/api/types";
import { choiceParam, numberParam, type Param, textParam } from "@/hooks/use-url-state";
import { formatFixed } from "@/lib/text/format";
import { visibleText } from "@/lib/text/token-text";
import { isContent, type NamedInfo } from "@/pages/prompt/expert-name";
import { layersParam } from "@/pages/prompt/routing/routing-params";

/** What all parts of the page show. */
export interface Parts {
  readonly response: CircuitResponse;
  /** Null until it is measured. */
  readonly check: CircuitCheck | null;
}

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
  /** Index of the selected node; null for the one that the finding names first. */
  node: numberParam(null, { min: 0 }),
};

const isWord = (text: string) => /[\p{L}\p{N}]/u.test(text);

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

/** What is explained if nothing is chosen, and what it passes over. */
export function kindOf(token: ReadText["candidates"][number] | undefined, candidates: ReadText["candidates"]): string {
  if (token === undefined || token === candidates[0]) return "token";
  const isFirst = token === candidates.find(({ text }) => isWord(text));
  return isFirst ? "word (punctuation is skipped)" : "content word (function words are skipped)";
}

/** The experts that support and oppose the target most, with its change without each. */
export function strongest({ nodes }: CircuitGraph, check: CircuitCheck | null) {
  const order = nodes
    .slice(1)
    .map(({ predicted }, i) => ({ index: i + 1, change: check?.measured[i + 1] ?? predicted }))
    .sort((a, b) => a.change - b.change);
  return [
    ...order.slice(0, 1).filter(({ change }) => change < 0),
    ...order.slice(-1).filter(({ change }) => change > 0),
  ];
}

export function tokenText(graph: CircuitGraph, position: number): string {
  const token = graph.tokens[position];
  return token === undefined ? "" : token.start ? "start" : visibleText(token.text);
}

/** Least effect through an edge that is always drawn, relative to the largest to the target, or between experts. */
export const DRAWN_FROM = 0.3;

/** The edges with their effects on the target through the later expert, relative to the largest. */
export function sizedEdges({ nodes, edges }: CircuitGraph) {
  const sized = edges.map((edge) => {
    const { activation = null, predicted: effect = 0 } = nodes[edge.target] ?? {};
    const through = edge.target === 0 || activation === null ? 1 : effect / activation;
    return { ...edge, size: Math.abs(edge.predicted * through) };
  });
  const largest = (all: readonly { readonly size: number }[]) => Math.max(1e-9, ...all.map(({ size }) => size));
  const [all, between] = [largest(sized), largest(sized.filter(({ target }) => target !== 0))];
  return sized.map((edge) => ({
    ...edge,
    size: edge.size / all,
    isStrong: edge.size >= DRAWN_FROM * (edge.target === 0 ? all : between),
  }));
}

type SizedEdge = ReturnType<typeof sizedEdges>[number];

/** The strongest edges, those of a node, and which of them lie on a path through it. */
export function pathThrough(index: number, all: readonly SizedEdge[]) {
  const drawn = all.filter(({ source, target, isStrong }) => isStrong || source === index || target === index);
  const reached = (from: "source" | "target", to: "source" | "target") => {
    const found = new Set([index]);
    // Also visits the nodes that are added on the way.
    for (const node of found) for (const edge of drawn) if (edge[from] === node) found.add(edge[to]);
    return found;
  };
  const [before, after] = [reached("target", "source"), reached("source", "target")];
  const isOn = ({ source, target }: SizedEdge) =>
    (before.has(source) && before.has(target)) || (after.has(source) && after.has(target));
  return { drawn, path: new Set(drawn.filter(isOn)), nodes: new Set([...before, ...after]) };
}

/** The mean token of what a node has strong edges with, by which the experts on a token of a layer are ordered. */
function meanToken(index: number, { nodes }: CircuitGraph, edges: readonly SizedEdge[]): number {
  const own = edges.filter(({ source, target, isStrong }) => isStrong && (source === index || target === index));
  const total = own.reduce((sum, { size }) => sum + size, 0);
  const places = own.map(({ source, target, size }) => {
    return (size / total) * (nodes[source === index ? target : source]?.position ?? 0);
  });
  return places.reduce((sum, place) => sum + place, 0);
}

/** The target, then each layer before it, the last one first, with the indices of its experts from left to right. */
export function graphRows(graph: CircuitGraph) {
  const { nodes, layers: traced, runs, target } = graph;
  const edges = sizedEdges(graph);
  const places = nodes.map((_, index) => meanToken(index, graph, edges));
  const end = target.kind === "expert" ? (traced[runs.indexOf(target.run)] ?? Infinity) : Infinity;
  const layers = new Set(traced.filter((layer) => layer < end));
  return [null, ...[...layers].sort((a, b) => b - a)].map((layer) => ({
    title: layer === null ? "Target" : `Layer ${layer}`,
    indices: [...nodes.keys()]
      .filter((index) => nodes[index]?.layer === layer)
      .sort((a, b) => (places[a] ?? 0) - (places[b] ?? 0)),
  }));
}

/** Each token with experts or the target by itself, named, and the others joined; without an unnamed start token. */
export function tokenRuns(graph: CircuitGraph) {
  const named = new Set(graph.nodes.map(({ position }) => position));
  const runs: { readonly positions: readonly number[]; readonly isNamed: boolean }[] = [];
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

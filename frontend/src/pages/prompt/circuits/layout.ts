/** Positions of a circuit's nodes: a column per token, as wide as its boxes, a row per layer, the target on top. */

import type { CircuitGraph } from "@/api/types";

import { tokenText } from "./circuit";

/** Widths in pixels of a box, without its gap. */
const WIDTH = { min: 116, max: 210 } as const;
/** Height of a box, whose name has two lines. */
const HEIGHT = 38;
const GAP = 6;
const ROW_GAP = 14;
const TARGET = { width: 210, height: 34 } as const;
const TOKEN_HEIGHT = 24;
/** Width in place of tokens without an expert. */
const LEFT_OUT = 24;

export interface Placed {
  readonly index: number;
  /** Centre. */
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

interface Column {
  /** A token with experts, or those between two such tokens. */
  readonly text: string;
  /** The text, or an ellipsis. */
  readonly label: string;
  readonly x: number;
  readonly width: number;
}

interface Row {
  readonly title: string;
  readonly y: number;
  readonly height: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly Placed[];
  readonly columns: readonly Column[];
  readonly rows: readonly Row[];
}

/** A layer of a graph, the last one first, with the indices of its experts, strongest first. */
interface GraphLayer {
  readonly layer: number;
  readonly indices: readonly number[];
}

export function graphLayers({ nodes }: CircuitGraph): readonly GraphLayer[] {
  const layers = new Map<number, number[]>();
  nodes.forEach(({ layer }, index) => {
    if (layer !== null) layers.set(layer, [...(layers.get(layer) ?? []), index]);
  });
  return [...layers].map(([layer, indices]) => ({ layer, indices })).sort((a, b) => b.layer - a.layer);
}

interface TokenRun {
  readonly positions: readonly number[];
  /** Indices of the experts on the token, by layer; all empty between tokens with experts. */
  readonly cells: readonly (readonly number[])[];
}

/** Each token with experts or the target by itself, and the others joined; without an unnamed start token. */
export function tokenRuns(graph: CircuitGraph): readonly TokenRun[] {
  const layers = graphLayers(graph);
  const named = new Set(graph.nodes.map(({ position }) => position));
  const runs: TokenRun[] = [];
  graph.tokens.forEach(({ start }, position) => {
    if (start && !named.has(position)) return;
    const last = runs.at(-1);
    const before = last?.positions.at(-1);
    if (last === undefined || named.has(position) || (before !== undefined && named.has(before))) {
      const on = (index: number) => graph.nodes[index]?.position === position;
      runs.push({ positions: [position], cells: layers.map(({ indices }) => indices.filter(on)) });
    } else runs[runs.length - 1] = { ...last, positions: [...last.positions, position] };
  });
  return runs;
}

/** `available`: width of the box in pixels; the graph is wider only if its boxes would become too narrow. */
export function layoutCircuit(graph: CircuitGraph, available: number): Layout {
  const runs = tokenRuns(graph);
  const largest = runs.map(({ cells }) => Math.max(0, ...cells.map(({ length }) => length)));
  const room = available - largest.filter((boxes) => boxes === 0).length * LEFT_OUT;
  // Side by side in a column: as many as make the highest stack lowest.
  const most = Math.floor(room / (WIDTH.min + GAP));
  const spread = (stack: number) => largest.map((boxes) => Math.ceil(boxes / stack));
  const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0);
  let stack = 1;
  while (sum(spread(stack)) > most && stack < Math.max(...largest)) stack++;
  const across = spread(stack);
  const nodeWidth = Math.min(WIDTH.max, Math.max(WIDTH.min, Math.floor(room / Math.max(1, sum(across))) - GAP));
  let end = 0;
  const columns = runs.map(({ positions }, i): Column => {
    const text = positions.map((position) => tokenText(graph, position)).join(" ");
    const width = largest[i] === 0 ? LEFT_OUT : (across[i] ?? 1) * (nodeWidth + GAP);
    end += width;
    return { text, label: largest[i] === 0 ? "⋯" : text, x: end - width, width };
  });
  const width = Math.max(end, TARGET.width);
  const last = columns.findLast((_, i) => largest[i] !== 0);
  const centre = last === undefined ? width / 2 : last.x + last.width / 2;
  const x = Math.min(width - TARGET.width / 2, Math.max(TARGET.width / 2, centre));
  const placed: Placed[] = [{ index: 0, x, y: TARGET.height / 2, ...TARGET }];
  const rows: Row[] = [{ title: "Target", y: 0, height: TARGET.height }];
  let y = TARGET.height + ROW_GAP;
  graphLayers(graph).forEach(({ layer }, row) => {
    const lines = runs.map(({ cells }, i) => Math.ceil((cells[row]?.length ?? 0) / Math.max(1, across[i] ?? 1)));
    const height = Math.max(...lines) * (HEIGHT + GAP) - GAP;
    runs.forEach(({ cells }, i) => {
      const indices = cells[row] ?? [];
      const column = columns[i];
      if (column === undefined) return;
      const perLine = Math.ceil(indices.length / Math.max(1, lines[i] ?? 1));
      indices.forEach((index, number) => {
        placed.push({
          index,
          x: column.x + column.width / 2 + ((number % perLine) - (perLine - 1) / 2) * (nodeWidth + GAP),
          y: y + HEIGHT / 2 + Math.floor(number / perLine) * (HEIGHT + GAP),
          width: nodeWidth,
          height: HEIGHT,
        });
      });
    });
    rows.push({ title: `Layer ${layer}`, y, height });
    y += height + ROW_GAP;
  });
  rows.push({ title: "Tokens", y: y - ROW_GAP / 2, height: TOKEN_HEIGHT });
  return {
    width,
    height: y - ROW_GAP / 2 + TOKEN_HEIGHT,
    nodes: placed.sort((a, b) => a.index - b.index),
    columns,
    rows,
  };
}

const DIRECTIONS = {
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
} as const;

/** The nearest node in the direction of an arrow key; a sideways offset counts 2.5 times. */
export function neighbour(nodes: readonly Placed[], from: Placed, key: string): Placed | undefined {
  if (!(key in DIRECTIONS)) return undefined;
  const [dx, dy] = DIRECTIONS[key as keyof typeof DIRECTIONS];
  const distance = (node: Placed) => {
    const ahead = dx * (node.x - from.x) + dy * (node.y - from.y);
    const aside = Math.abs(dy * (node.x - from.x)) + Math.abs(dx * (node.y - from.y));
    return ahead <= 1 ? Infinity : ahead + 2.5 * aside;
  };
  const [best] = [...nodes].sort((a, b) => distance(a) - distance(b));
  return best === undefined || distance(best) === Infinity ? undefined : best;
}

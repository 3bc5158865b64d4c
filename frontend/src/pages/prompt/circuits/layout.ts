/** Positions of a circuit's nodes: a column per token, all of one width, a row per layer, the target on top. */

import type { CircuitGraph } from "@/api/types";

import { tokenText } from "./circuit";

/** Widths in pixels of a box, without its gap. */
const WIDTH = { min: 116, max: 210 } as const;
/** Heights of a box with two lines, and with three if it is narrower than `narrow`. */
const HEIGHT = { two: 38, three: 53, narrow: 160 } as const;
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
  const count = Math.max(1, largest.filter((boxes) => boxes > 0).length);
  const room = Math.floor((available - (runs.length - count) * LEFT_OUT) / count);
  // As many boxes side by side as a column holds, and the highest stack needs.
  const across = Math.max(1, Math.min(Math.floor(room / (WIDTH.min + GAP)), Math.max(...largest)));
  const nodeWidth = Math.min(WIDTH.max, Math.max(WIDTH.min, Math.floor(room / across) - GAP));
  const nodeHeight = nodeWidth < HEIGHT.narrow ? HEIGHT.three : HEIGHT.two;
  const columnWidth = Math.max(across * (nodeWidth + GAP), Math.min(room, across * (WIDTH.max + GAP)));
  let end = 0;
  const columns = runs.map(({ positions }, i): Column => {
    const text = positions.map((position) => tokenText(graph, position)).join(" ");
    const width = largest[i] === 0 ? LEFT_OUT : columnWidth;
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
    const stack = Math.max(...runs.map(({ cells }) => Math.ceil((cells[row]?.length ?? 0) / across)));
    const height = stack * (nodeHeight + GAP) - GAP;
    runs.forEach(({ cells }, i) => {
      const indices = cells[row] ?? [];
      const column = columns[i];
      if (column === undefined) return;
      const perLine = Math.ceil(indices.length / Math.max(1, Math.ceil(indices.length / across)));
      indices.forEach((index, number) => {
        placed.push({
          index,
          x: column.x + column.width / 2 + ((number % perLine) - (perLine - 1) / 2) * (nodeWidth + GAP),
          y: y + nodeHeight / 2 + Math.floor(number / perLine) * (nodeHeight + GAP),
          width: nodeWidth,
          height: nodeHeight,
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

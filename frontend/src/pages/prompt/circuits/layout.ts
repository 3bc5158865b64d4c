/** Positions of a circuit's nodes: a column per token, a row per layer, the target on top, as wide as its box. */

import type { CircuitGraph } from "@/api/types";

import { tokenText } from "./circuit";

/**
 * Widths in pixels of a box and its gap. A token gets further boxes side by side while they are at least `usual`, or
 * at least `min` if its stack is higher than `HIGH`.
 */
const WIDTH = { min: 88, usual: 136, max: 210 } as const;
const HIGH = 3;
export const NODE_HEIGHT = 32;
const GAP = 4;
const ROW_GAP = 12;
const TARGET_WIDTH = 210;
const TOKEN_HEIGHT = 24;
/** Least width of the tokens between two that have experts, and of their number with its noun. */
const BETWEEN = 34;
const NAMED = 78;

export interface Placed {
  readonly index: number;
  /** Centre. */
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

interface Column {
  /** A token with experts, or those between two such tokens. */
  readonly text: string;
  /** The text, or the number of tokens if it is too long. */
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

/** Boxes side by side in each run of tokens: while there is room, the highest stack gets one more, the last one first. */
function boxesAcross(runs: readonly TokenRun[], room: number): readonly number[] {
  const largest = runs.map(({ cells }) => Math.max(0, ...cells.map(({ length }) => length)));
  const across: number[] = largest.map((count) => Math.min(1, count));
  for (;;) {
    const heights = largest.map((count, i) => (count === 0 ? 0 : Math.ceil(count / (across[i] ?? 1))));
    const highest = heights.lastIndexOf(Math.max(...heights));
    const most = heights[highest] ?? 0;
    const total = across.reduce((sum, count) => sum + count, 1);
    if (most <= 1 || total * ((most > HIGH ? WIDTH.min : WIDTH.usual) + GAP) > room) break;
    across[highest] = (across[highest] ?? 0) + 1;
  }
  return across;
}

/** Columns from left to right. Several tokens are named by their number. */
function columnsOf(graph: CircuitGraph, runs: readonly TokenRun[], widths: readonly number[]): readonly Column[] {
  let x = 0;
  return runs.map(({ positions }, i) => {
    const width = widths[i] ?? 0;
    const text = positions.map((position) => tokenText(graph, position)).join(" ");
    x += width;
    const label = positions.length === 1 ? text : width < NAMED ? `+${positions.length}` : `${positions.length} tokens`;
    return { text, label, x: x - width, width };
  });
}

/** `available`: width of the box in pixels; the graph is wider only if its boxes would become too narrow. */
export function layoutCircuit(graph: CircuitGraph, available: number): Layout {
  const runs = tokenRuns(graph);
  const numBetween = runs.filter(({ cells }) => cells.every(({ length }) => length === 0)).length;
  const least = Math.min(BETWEEN, available / 20);
  const room = available - numBetween * least;
  const across = boxesAcross(runs, room);
  const total = Math.max(
    1,
    across.reduce((sum, count) => sum + count, 0),
  );
  const nodeWidth = Math.min(WIDTH.max, Math.max(WIDTH.min, Math.floor(room / total) - GAP));
  const between = least + Math.max(0, room - total * (nodeWidth + GAP)) / Math.max(1, numBetween);
  const columns = columnsOf(
    graph,
    runs,
    across.map((boxes) => (boxes === 0 ? between : boxes * (nodeWidth + GAP))),
  );
  const { x = 0, width: lastWidth = 0 } = columns.at(-1) ?? {};
  const width = Math.max(x + lastWidth, TARGET_WIDTH);
  const last = columns.findLast((_, i) => across[i] !== 0);
  const end = last === undefined ? width / 2 : last.x + last.width / 2;
  const placed: Placed[] = [
    {
      index: 0,
      x: Math.min(width - TARGET_WIDTH / 2, Math.max(TARGET_WIDTH / 2, end)),
      y: NODE_HEIGHT / 2,
      width: TARGET_WIDTH,
    },
  ];
  const rows: Row[] = [{ title: "Target", y: 0, height: NODE_HEIGHT }];
  let y = NODE_HEIGHT + ROW_GAP;
  graphLayers(graph).forEach(({ layer }, row) => {
    const stackOf = (i: number) => Math.ceil((runs[i]?.cells[row]?.length ?? 0) / Math.max(1, across[i] ?? 1));
    const height = Math.max(...runs.map((_, i) => stackOf(i))) * (NODE_HEIGHT + GAP) - GAP;
    runs.forEach(({ cells }, i) => {
      const indices = cells[row] ?? [];
      const column = columns[i];
      if (column === undefined) return;
      const perLine = Math.ceil(indices.length / Math.max(1, stackOf(i)));
      indices.forEach((index, number) => {
        placed.push({
          index,
          x: column.x + column.width / 2 + ((number % perLine) - (perLine - 1) / 2) * (nodeWidth + GAP),
          y: y + NODE_HEIGHT / 2 + Math.floor(number / perLine) * (NODE_HEIGHT + GAP),
          width: nodeWidth,
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

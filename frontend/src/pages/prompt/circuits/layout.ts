/** Positions of a circuit's nodes: a column per token, a row per layer, the target on top. */

import type { CircuitGraph } from "@/api/types";

import { tokenText } from "./names";

const NODE_WIDTH = 140;
export const NODE_HEIGHT = 38;
const GAP = 6;
const ROW_GAP = 26;
const TARGET_WIDTH = 190;
const TOKEN_HEIGHT = 26;
const CHARACTER = 7.9;
const MIN_TOKEN = 26;
/** A cell with more experts than this has two columns. */
const MAX_STACK = 5;
/** Texts with more tokens show only this many around tokens with experts. */
const LONG = 24;
const AROUND = 1;

export interface Placed {
  readonly index: number;
  /** Centre. */
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

export interface Column {
  /** Null for tokens that are left out. */
  readonly position: number | null;
  readonly x: number;
  readonly width: number;
}

export interface Row {
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

const cellKey = (layer: number | null, position: number) => `${layer}:${position}`;

/** Indices of the experts of each layer and token, strongest first. */
function cells({ nodes }: CircuitGraph): ReadonlyMap<string, readonly number[]> {
  const found = new Map<string, number[]>();
  nodes.forEach((node, index) => {
    if (node.kind !== "expert") return;
    const key = cellKey(node.layer, node.position);
    found.set(key, [...(found.get(key) ?? []), index]);
  });
  return found;
}

const columnsOf = (count: number) => (count > MAX_STACK ? 2 : 1);
const stackOf = (count: number) => Math.ceil(count / columnsOf(count));

/** Positions that have a column; null for a gap. */
export function shownPositions(graph: CircuitGraph): readonly (number | null)[] {
  const all = graph.tokens.map((_, position) => position);
  if (all.length <= LONG) return all;
  const near = new Set(
    graph.nodes.flatMap(({ position }) => all.slice(Math.max(0, position - AROUND), position + AROUND + 1)),
  );
  return all.flatMap((position) => (near.has(position) ? [position] : near.has(position + 1) ? [null] : []));
}

export function layoutCircuit(graph: CircuitGraph): Layout {
  const byCell = cells(graph);
  const layers = [...new Set(graph.nodes.flatMap(({ layer }) => (layer === null ? [] : [layer])))].sort(
    (a, b) => b - a,
  );
  let x = 0;
  const columns = shownPositions(graph).map((position): Column => {
    const counts = layers.map((layer) => byCell.get(cellKey(layer, position ?? -1))?.length ?? 0);
    const across = Math.max(...counts.map((count) => (count === 0 ? 0 : columnsOf(count))), 0);
    const text = position === null ? 1 : tokenText(graph, position).length;
    const width = Math.max(MIN_TOKEN, text * CHARACTER + 10, across * (NODE_WIDTH + GAP) + GAP);
    x += width;
    return { position, x: x - width, width };
  });
  const last = columns.at(-1);
  const width = Math.max(x, TARGET_WIDTH);
  const placed: Placed[] = [
    {
      index: 0,
      x: last === undefined ? width / 2 : Math.max(TARGET_WIDTH / 2, last.x + last.width - TARGET_WIDTH / 2),
      y: NODE_HEIGHT / 2,
      width: TARGET_WIDTH,
    },
  ];
  let y = NODE_HEIGHT + ROW_GAP;
  const rows: Row[] = [{ title: "Target", y: 0, height: NODE_HEIGHT }];
  for (const layer of layers) {
    const inRow = columns.map((column) => byCell.get(cellKey(layer, column.position ?? -1)) ?? []);
    const height = Math.max(1, ...inRow.map(({ length }) => stackOf(length))) * (NODE_HEIGHT + GAP) - GAP;
    inRow.forEach((indices, place) => {
      const column = columns[place];
      if (column === undefined) return;
      const stack = stackOf(indices.length);
      const across = columnsOf(indices.length);
      indices.forEach((index, number) => {
        const side = Math.floor(number / stack) - (across - 1) / 2;
        placed.push({
          index,
          x: column.x + column.width / 2 + side * (NODE_WIDTH + GAP),
          y: y + height / 2 + ((number % stack) - (stack - 1) / 2) * (NODE_HEIGHT + GAP),
          width: NODE_WIDTH,
        });
      });
    });
    rows.push({ title: `Layer ${layer}`, y, height });
    y += height + ROW_GAP;
  }
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

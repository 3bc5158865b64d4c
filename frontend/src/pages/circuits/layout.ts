/** Where the nodes of a circuit stand: tokens across, layers up, the target on top. */

import type { CircuitGraph, CircuitNode } from "@/api/types";
import { visibleText } from "@/lib/token-text";

export interface PlacedNode {
  readonly node: CircuitNode;
  /** Its place in the graph's nodes. */
  readonly index: number;
  /** Of its middle, in px. */
  readonly x: number;
  readonly y: number;
  /** Of its shape. */
  readonly width: number;
  readonly height: number;
}

export interface LayoutRow {
  /** `target`, `embedding`, or a layer. */
  readonly name: string;
  readonly y: number;
  readonly height: number;
}

export interface LayoutColumn {
  readonly position: number;
  readonly x: number;
  readonly width: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly PlacedNode[];
  readonly rows: readonly LayoutRow[];
  readonly columns: readonly LayoutColumn[];
}

const CHARACTER = 7.6;
const PITCH = 30;
const ACROSS = 4;
const ROW_PADDING = 26;
const TOKEN_HEIGHT = 26;
const SMALLEST = 15;
const LARGEST = 27;
const COLUMN_GAP = 8;
const MARGIN = 10;

const TARGET = "target";
const EMBEDDING = "embedding";

function rowOf(node: CircuitNode): string {
  if (node.kind === TARGET || node.kind === EMBEDDING) return node.kind;
  return String(node.layer);
}

/** From top to bottom: the target, the layers that were traced or hold a node, the tokens. */
function rowNames({ layers, nodes }: CircuitGraph): readonly string[] {
  const every = new Set([...layers, ...nodes.flatMap(({ layer }) => (layer === null ? [] : [layer]))]);
  return [TARGET, ...[...every].sort((a, b) => b - a).map(String), EMBEDDING];
}

/** The nodes of each cell, most influential first. */
function cellsOf(nodes: readonly CircuitNode[]): ReadonlyMap<string, readonly number[]> {
  const cells = new Map<string, number[]>();
  nodes.forEach((node, index) => {
    const key = `${rowOf(node)}/${node.position}`;
    cells.set(key, [...(cells.get(key) ?? []), index]);
  });
  return cells;
}

const lines = (count: number) => Math.ceil(count / ACROSS);
export const tokenWidth = (text: string) => Math.max(18, visibleText(text).length * CHARACTER + 10);

/** Its size on screen grows with the root of its influence, so that areas compare. */
function sizeOf(node: CircuitNode, most: number): number {
  return SMALLEST + (LARGEST - SMALLEST) * Math.sqrt(most === 0 ? 0 : Math.min(1, node.influence / most));
}

function columnsOf(graph: CircuitGraph, cells: ReadonlyMap<string, readonly number[]>): readonly LayoutColumn[] {
  const across = new Map<number, number>();
  for (const [key, indices] of cells) {
    const position = Number(key.slice(key.indexOf("/") + 1));
    across.set(position, Math.max(across.get(position) ?? 0, Math.min(ACROSS, indices.length)));
  }
  let x = MARGIN;
  return graph.tokens.map(({ text, start }, position) => {
    const last = position === graph.tokens.length - 1;
    const words = start ? tokenWidth("start") : tokenWidth(text);
    const target = last ? tokenWidth(graph.target.text) + 24 : 0;
    const width = Math.max(words, target, (across.get(position) ?? 0) * PITCH);
    const column = { position, x, width };
    x += width + COLUMN_GAP;
    return column;
  });
}

function rowsOf(graph: CircuitGraph, cells: ReadonlyMap<string, readonly number[]>): readonly LayoutRow[] {
  let y = MARGIN;
  return rowNames(graph).map((name) => {
    const most = Math.max(1, ...[...cells].filter(([key]) => key.startsWith(`${name}/`)).map(([, it]) => it.length));
    const words = name === TARGET || name === EMBEDDING;
    const height = words ? TOKEN_HEIGHT + ROW_PADDING : lines(most) * PITCH + ROW_PADDING;
    const row = { name, y, height };
    y += height;
    return row;
  });
}

export function layoutOf(graph: CircuitGraph): Layout {
  const cells = cellsOf(graph.nodes);
  const columns = columnsOf(graph, cells);
  const rows = rowsOf(graph, cells);
  const most = Math.max(0, ...graph.nodes.slice(1).map(({ influence }) => influence));
  const nodes: PlacedNode[] = [];
  for (const [key, indices] of cells) {
    const row = rows.find(({ name }) => key.startsWith(`${name}/`));
    const column = columns[Number(key.slice(key.indexOf("/") + 1))];
    if (row === undefined || column === undefined) continue;
    indices.forEach((index, i) => {
      const node = graph.nodes[index];
      if (node === undefined) return;
      const inLine = Math.min(ACROSS, indices.length - Math.floor(i / ACROSS) * ACROSS);
      const x = column.x + column.width / 2 + ((i % ACROSS) - (inLine - 1) / 2) * PITCH;
      const y = row.y + row.height / 2 + (Math.floor(i / ACROSS) - (lines(indices.length) - 1) / 2) * PITCH;
      const words = node.kind === TARGET || node.kind === EMBEDDING;
      const size = sizeOf(node, most);
      nodes.push({ node, index, x, y, width: words ? column.width : size, height: words ? TOKEN_HEIGHT : size });
    });
  }
  const right = columns.at(-1);
  const bottom = rows.at(-1);
  return {
    width: right === undefined ? 0 : right.x + right.width + MARGIN,
    height: bottom === undefined ? 0 : bottom.y + bottom.height,
    nodes: nodes.sort((a, b) => a.index - b.index),
    rows,
    columns,
  };
}

export type Direction = "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight";

/** The nearest node in a direction; what lies more to the side than ahead counts as further away. */
export function neighbour(
  nodes: readonly PlacedNode[],
  from: PlacedNode,
  direction: Direction,
): PlacedNode | undefined {
  const isUpright = direction === "ArrowUp" || direction === "ArrowDown";
  const sign = direction === "ArrowUp" || direction === "ArrowLeft" ? -1 : 1;
  const distance = (node: PlacedNode) => {
    const ahead = sign * (isUpright ? node.y - from.y : node.x - from.x);
    const aside = Math.abs(isUpright ? node.x - from.x : node.y - from.y);
    return ahead <= 1 ? Infinity : ahead + 2.5 * aside;
  };
  const [best] = [...nodes].sort((a, b) => distance(a) - distance(b));
  return best === undefined || distance(best) === Infinity ? undefined : best;
}

/** Layout of a circuit: tokens from left to right, layers from bottom to top, the target at the top. */

import type { CircuitGraph, CircuitNode } from "@/api/types";
import { visibleText } from "@/lib/text/token-text";

export interface PlacedNode {
  readonly node: CircuitNode;
  /** Index into the graph's nodes. */
  readonly index: number;
  /** Centre in pixels. */
  readonly x: number;
  readonly y: number;
  /** Size in pixels. */
  readonly width: number;
  readonly height: number;
}

export interface LayoutRow {
  /** `target`, `embedding` or a layer number. */
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

const CHARACTER_WIDTH = 7.6;
const NODE_PITCH = 30;
const NODES_PER_LINE = 4;
const ROW_PADDING = 26;
const TOKEN_HEIGHT = 26;
const MIN_NODE_SIZE = 15;
const MAX_NODE_SIZE = 27;
const COLUMN_GAP = 8;
const MARGIN = 10;

const TARGET = "target";
const EMBEDDING = "embedding";

function rowName(node: CircuitNode): string {
  if (node.kind === TARGET || node.kind === EMBEDDING) return node.kind;
  return String(node.layer);
}

/** From top to bottom: the target, the traced layers, the tokens. */
function rowNames({ layers, nodes }: CircuitGraph): readonly string[] {
  const every = new Set([...layers, ...nodes.flatMap(({ layer }) => (layer === null ? [] : [layer]))]);
  return [TARGET, ...[...every].sort((a, b) => b - a).map(String), EMBEDDING];
}

/** Node indices by cell (row and token), most influential first. */
function groupByCell(nodes: readonly CircuitNode[]): ReadonlyMap<string, readonly number[]> {
  const cells = new Map<string, number[]>();
  nodes.forEach((node, index) => {
    const key = `${rowName(node)}/${node.position}`;
    cells.set(key, [...(cells.get(key) ?? []), index]);
  });
  return cells;
}

const numLines = (count: number) => Math.ceil(count / NODES_PER_LINE);
export const tokenWidth = (text: string) => Math.max(18, visibleText(text).length * CHARACTER_WIDTH + 10);

/** Size in pixels, proportional to the square root of the influence so that areas are comparable. */
function nodeSize(node: CircuitNode, most: number): number {
  return (
    MIN_NODE_SIZE + (MAX_NODE_SIZE - MIN_NODE_SIZE) * Math.sqrt(most === 0 ? 0 : Math.min(1, node.influence / most))
  );
}

function layoutColumns(graph: CircuitGraph, cells: ReadonlyMap<string, readonly number[]>): readonly LayoutColumn[] {
  const nodesAcross = new Map<number, number>();
  for (const [key, indices] of cells) {
    const position = Number(key.slice(key.indexOf("/") + 1));
    nodesAcross.set(position, Math.max(nodesAcross.get(position) ?? 0, Math.min(NODES_PER_LINE, indices.length)));
  }
  let x = MARGIN;
  return graph.tokens.map(({ text, start }, position) => {
    const last = position === graph.tokens.length - 1;
    const words = start ? tokenWidth("start") : tokenWidth(text);
    const target = last ? tokenWidth(graph.target.text) + 24 : 0;
    const width = Math.max(words, target, (nodesAcross.get(position) ?? 0) * NODE_PITCH);
    const column = { position, x, width };
    x += width + COLUMN_GAP;
    return column;
  });
}

function layoutRows(graph: CircuitGraph, cells: ReadonlyMap<string, readonly number[]>): readonly LayoutRow[] {
  let y = MARGIN;
  return rowNames(graph).map((name) => {
    const most = Math.max(
      1,
      ...[...cells].filter(([key]) => key.startsWith(`${name}/`)).map(([, indices]) => indices.length),
    );
    const words = name === TARGET || name === EMBEDDING;
    const height = words ? TOKEN_HEIGHT + ROW_PADDING : numLines(most) * NODE_PITCH + ROW_PADDING;
    const row = { name, y, height };
    y += height;
    return row;
  });
}

export function layoutCircuit(graph: CircuitGraph): Layout {
  const cells = groupByCell(graph.nodes);
  const columns = layoutColumns(graph, cells);
  const rows = layoutRows(graph, cells);
  const most = Math.max(0, ...graph.nodes.slice(1).map(({ influence }) => influence));
  const nodes: PlacedNode[] = [];
  for (const [key, indices] of cells) {
    const row = rows.find(({ name }) => key.startsWith(`${name}/`));
    const column = columns[Number(key.slice(key.indexOf("/") + 1))];
    if (row === undefined || column === undefined) continue;
    indices.forEach((index, i) => {
      const node = graph.nodes[index];
      if (node === undefined) return;
      const inLine = Math.min(NODES_PER_LINE, indices.length - Math.floor(i / NODES_PER_LINE) * NODES_PER_LINE);
      const x = column.x + column.width / 2 + ((i % NODES_PER_LINE) - (inLine - 1) / 2) * NODE_PITCH;
      const y =
        row.y + row.height / 2 + (Math.floor(i / NODES_PER_LINE) - (numLines(indices.length) - 1) / 2) * NODE_PITCH;
      const words = node.kind === TARGET || node.kind === EMBEDDING;
      const size = nodeSize(node, most);
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

/** The nearest node in a direction; a sideways offset counts 2.5 times. */
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

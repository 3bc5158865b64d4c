/** Layout of a circuit: tokens from left to right, layers from bottom to top, the target at the top. */

import type { CircuitGraph } from "@/api/types";
import { visibleText } from "@/lib/text/token-text";

import { mlpBand } from "./mlp-bands";
import type { ShownGraph, ShownNode } from "./shown-graph";

export interface PlacedNode {
  readonly shown: ShownNode;
  /** Index into the shown nodes. */
  readonly index: number;
  /** Centre in pixels. */
  readonly x: number;
  readonly y: number;
  /** Size in pixels. */
  readonly width: number;
  readonly height: number;
}

export interface LayoutRow {
  /** `target`, `embedding` or a layer number: the first one of a band of layers without a run. */
  readonly name: string;
  readonly y: number;
  readonly height: number;
}

export interface LayoutColumn {
  readonly position: number;
  readonly x: number;
  /** 0 for all but the first of consecutive tokens that a long text leaves out. */
  readonly width: number;
  readonly isGap: boolean;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly PlacedNode[];
  readonly rows: readonly LayoutRow[];
  readonly columns: readonly LayoutColumn[];
}

const CHARACTER_WIDTH = 7.6;
/** Widths of nodes, the preferred one first. */
const NODE_WIDTHS = [138, 122, 106, 92] as const;
const NARROWEST = 92;
const NODE_HEIGHT = 22;
const GAP = 5;
const ROW_PADDING = 20;
const TOKEN_HEIGHT = 26;
const COLUMN_GAP = 8;
const MARGIN = 10;
/** In longer texts, tokens without nodes are left out. */
const MAX_TOKENS = 128;
const GAP_WIDTH = 18;

const TARGET = "target";
const EMBEDDING = "embedding";

const rowLayer = (graph: CircuitGraph, layer: number) => mlpBand(graph, layer)?.first ?? layer;

function rowName(graph: CircuitGraph, { node, supernode }: ShownNode): string {
  if (supernode === null && (node.kind === TARGET || node.kind === EMBEDDING)) return node.kind;
  return node.layer === null ? node.kind : String(rowLayer(graph, node.layer));
}

/** From top to bottom: the target, the traced layers with the bands of others between them, the tokens. */
function rowNames(graph: CircuitGraph, nodes: readonly ShownNode[]): readonly string[] {
  const shown = nodes.flatMap(({ node }) => (node.layer === null ? [] : [rowLayer(graph, node.layer)]));
  const every = new Set([...graph.layers, ...shown]);
  return [TARGET, ...[...every].sort((a, b) => b - a).map(String), EMBEDDING];
}

/** Node indices by cell (row and token), most influential first. */
function groupByCell(graph: CircuitGraph, nodes: readonly ShownNode[]): ReadonlyMap<string, readonly number[]> {
  const cells = new Map<string, number[]>();
  nodes.forEach((shown, index) => {
    const key = `${rowName(graph, shown)}/${shown.node.position}`;
    cells.set(key, [...(cells.get(key) ?? []), index]);
  });
  return cells;
}

const cellPosition = (key: string) => Number(key.slice(key.indexOf("/") + 1));
const numAcross = (count: number) => (count <= 1 ? 1 : count <= 12 ? 2 : 3);
const numLines = (count: number) => Math.ceil(count / numAcross(count));
export const tokenWidth = (text: string) => Math.max(18, visibleText(text).length * CHARACTER_WIDTH + 10);

function isWord({ node, supernode }: ShownNode): boolean {
  return supernode === null && (node.kind === TARGET || node.kind === EMBEDDING);
}

function layoutColumns(
  graph: CircuitGraph,
  nodes: readonly ShownNode[],
  cells: ReadonlyMap<string, readonly number[]>,
  nodeWidth: number,
): readonly LayoutColumn[] {
  const nodesAcross = new Map<number, number>();
  for (const [key, [first, ...rest]] of cells) {
    const shown = first === undefined ? undefined : nodes[first];
    if (shown === undefined || isWord(shown)) continue;
    const position = cellPosition(key);
    nodesAcross.set(position, Math.max(nodesAcross.get(position) ?? 0, numAcross(rest.length + 1)));
  }
  const withNode = new Set(nodes.map(({ node }) => node.position));
  let x = MARGIN;
  return graph.tokens.map(({ text, start }, position) => {
    const isLast = position === graph.tokens.length - 1;
    if (graph.tokens.length > MAX_TOKENS && !isLast && !withNode.has(position)) {
      const isGap = position === 0 || withNode.has(position - 1);
      const gap = { position, x, width: isGap ? GAP_WIDTH : 0, isGap };
      x += isGap ? GAP_WIDTH + COLUMN_GAP : 0;
      return gap;
    }
    const words = start ? tokenWidth("start") : tokenWidth(text);
    const target = isLast ? tokenWidth(graph.target.text) + 24 : 0;
    const width = Math.max(words, target, (nodesAcross.get(position) ?? 0) * (nodeWidth + GAP) - GAP);
    const column = { position, x, width, isGap: false };
    x += width + COLUMN_GAP;
    return column;
  });
}

function layoutRows(
  graph: CircuitGraph,
  nodes: readonly ShownNode[],
  cells: ReadonlyMap<string, readonly number[]>,
): readonly LayoutRow[] {
  let y = MARGIN;
  return rowNames(graph, nodes).map((name) => {
    const counts = [...cells].filter(([key]) => key.startsWith(`${name}/`)).map(([, indices]) => indices.length);
    const lines = Math.max(1, ...counts.map(numLines));
    const content = name === TARGET || name === EMBEDDING ? TOKEN_HEIGHT : lines * (NODE_HEIGHT + GAP) - GAP;
    const row = { name, y, height: content + ROW_PADDING };
    y += row.height;
    return row;
  });
}

/** Nodes of one cell, in lines around its centre. */
function placeCell(
  nodes: readonly ShownNode[],
  indices: readonly number[],
  row: LayoutRow,
  column: LayoutColumn,
  nodeWidth: number,
): readonly PlacedNode[] {
  const [across, lines] = [numAcross(indices.length), numLines(indices.length)];
  return indices.flatMap((index, i) => {
    const shown = nodes[index];
    if (shown === undefined) return [];
    const line = Math.floor(i / across);
    const inLine = Math.min(across, indices.length - line * across);
    const x = column.x + column.width / 2 + ((i % across) - (inLine - 1) / 2) * (nodeWidth + GAP);
    const y = row.y + row.height / 2 + (line - (lines - 1) / 2) * (NODE_HEIGHT + GAP);
    const size = isWord(shown)
      ? { width: Math.min(column.width, nodeWidth), height: TOKEN_HEIGHT }
      : { width: nodeWidth, height: NODE_HEIGHT };
    return [{ shown, index, x, y, ...size }];
  });
}

function columnsEnd(columns: readonly LayoutColumn[]): number {
  const right = columns.at(-1);
  return right === undefined ? 0 : right.x + right.width + MARGIN;
}

/** `available`: width in which the graph should fit. Nodes become narrower for it, within limits. */
export function layoutCircuit(graph: CircuitGraph, { nodes }: ShownGraph, available = Infinity): Layout {
  const cells = groupByCell(graph, nodes);
  const fits = (width: number) => columnsEnd(layoutColumns(graph, nodes, cells, width)) <= available;
  const nodeWidth = NODE_WIDTHS.find(fits) ?? NARROWEST;
  const columns = layoutColumns(graph, nodes, cells, nodeWidth);
  const rows = layoutRows(graph, nodes, cells);
  const placed = [...cells].flatMap(([key, indices]) => {
    const row = rows.find(({ name }) => key.startsWith(`${name}/`));
    const column = columns[cellPosition(key)];
    return row === undefined || column === undefined ? [] : placeCell(nodes, indices, row, column, nodeWidth);
  });
  const bottom = rows.at(-1);
  return {
    width: columnsEnd(columns),
    height: bottom === undefined ? 0 : bottom.y + bottom.height,
    nodes: placed.sort((a, b) => a.index - b.index),
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

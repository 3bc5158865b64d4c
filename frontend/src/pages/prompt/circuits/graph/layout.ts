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

interface Row extends LayoutRow {
  readonly nodeHeight: number;
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

/** How closely nodes are placed. */
interface Density {
  readonly nodeWidth: number;
  /** Most nodes of a cell that are one above the other; more are in several columns. */
  readonly stacked: number;
  readonly hidesTokens: boolean;
}

/** The preferred one first. */
const DENSITIES: readonly Density[] = [
  ...[138, 122, 106].map((nodeWidth) => ({ nodeWidth, stacked: 1, hidesTokens: false })),
  ...[122, 106, 100].map((nodeWidth) => ({ nodeWidth, stacked: 4, hidesTokens: false })),
];
const DENSEST: Density = { nodeWidth: 100, stacked: 6, hidesTokens: true };
/** Experts have two lines of text. */
const EXPERT_HEIGHT = 34;
const NODE_HEIGHT = 22;
/** Original MLPs and error nodes, which have short names. */
const PLAIN_WIDTH = 68;
const GAP = 5;
/** Between boxes in one column. */
const VERTICAL_GAP = 7;
const ROW_PADDING = 20;
const TOKEN_HEIGHT = 26;
const COLUMN_GAP = 8;
const MARGIN = 10;
/** In longer texts, tokens without nodes are left out; in those above the smaller number, only if there is no room. */
const MAX_TOKENS = 128;
const MANY_TOKENS = 24;
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
type Cells = ReadonlyMap<string, readonly number[]>;

function groupByCell(graph: CircuitGraph, nodes: readonly ShownNode[]): Cells {
  const cells = new Map<string, number[]>();
  nodes.forEach((shown, index) => {
    const key = `${rowName(graph, shown)}/${shown.node.position}`;
    cells.set(key, [...(cells.get(key) ?? []), index]);
  });
  return cells;
}

const cellPosition = (key: string) => Number(key.slice(key.indexOf("/") + 1));
const numAcross = (count: number, { stacked }: Density) => (count <= stacked ? 1 : count <= 12 ? 2 : 3);
const numLines = (count: number, density: Density) => Math.ceil(count / numAcross(count, density));
export const tokenWidth = (text: string) => Math.max(18, visibleText(text).length * CHARACTER_WIDTH + 10);

function isWord({ node, supernode }: ShownNode): boolean {
  return supernode === null && (node.kind === TARGET || node.kind === EMBEDDING);
}

const isPlain = ({ node, supernode }: ShownNode) =>
  supernode === null && (node.kind === "mlp" || node.kind === "error");

const boxWidth = (shown: ShownNode, { nodeWidth }: Density) =>
  isPlain(shown) ? Math.min(PLAIN_WIDTH, nodeWidth) : nodeWidth;

/** The width that the nodes of each token need. */
function widthsByPosition(nodes: readonly ShownNode[], cells: Cells, density: Density): ReadonlyMap<number, number> {
  const widths = new Map<number, number>();
  for (const [key, indices] of cells) {
    const boxes = indices.flatMap((index) => nodes[index] ?? []).filter((shown) => !isWord(shown));
    const widest = Math.max(0, ...boxes.map((shown) => boxWidth(shown, density)));
    const width = numAcross(boxes.length, density) * (widest + GAP) - GAP;
    const position = cellPosition(key);
    widths.set(position, Math.max(widths.get(position) ?? 0, width));
  }
  return widths;
}

function layoutColumns(
  graph: CircuitGraph,
  nodes: readonly ShownNode[],
  cells: Cells,
  density: Density,
): readonly LayoutColumn[] {
  const nodeWidths = widthsByPosition(nodes, cells, density);
  const hidesTokens = graph.tokens.length > (density.hidesTokens ? MANY_TOKENS : MAX_TOKENS);
  const withNode = new Set(nodes.map(({ node }) => node.position));
  let x = MARGIN;
  return graph.tokens.map(({ text, start }, position) => {
    const isLast = position === graph.tokens.length - 1;
    if (hidesTokens && !isLast && !withNode.has(position)) {
      const isGap = position === 0 || withNode.has(position - 1);
      const gap = { position, x, width: isGap ? GAP_WIDTH : 0, isGap };
      x += isGap ? GAP_WIDTH + COLUMN_GAP : 0;
      return gap;
    }
    const words = start ? tokenWidth("start") : tokenWidth(text);
    const target = isLast ? tokenWidth(graph.target.text) + 24 : 0;
    const width = Math.max(words, target, nodeWidths.get(position) ?? 0);
    const column = { position, x, width, isGap: false };
    x += width + COLUMN_GAP;
    return column;
  });
}

function layoutRows(graph: CircuitGraph, nodes: readonly ShownNode[], cells: Cells, density: Density): readonly Row[] {
  let y = MARGIN;
  return rowNames(graph, nodes).map((name) => {
    const inRow = [...cells].filter(([key]) => key.startsWith(`${name}/`)).map(([, indices]) => indices);
    const lines = Math.max(1, ...inRow.map((indices) => numLines(indices.length, density)));
    const isPlainRow = inRow.flat().every((index) => nodes[index] !== undefined && isPlain(nodes[index]));
    const nodeHeight = name === TARGET || name === EMBEDDING ? TOKEN_HEIGHT : isPlainRow ? NODE_HEIGHT : EXPERT_HEIGHT;
    const row = { name, y, nodeHeight, height: lines * (nodeHeight + VERTICAL_GAP) - VERTICAL_GAP + ROW_PADDING };
    y += row.height;
    return row;
  });
}

/** Nodes of one cell, in lines around its centre. */
function placeCell(
  nodes: readonly ShownNode[],
  indices: readonly number[],
  { nodeHeight, ...row }: Row,
  column: LayoutColumn,
  density: Density,
): readonly PlacedNode[] {
  const [across, lines] = [numAcross(indices.length, density), numLines(indices.length, density)];
  const widest = Math.max(0, ...indices.flatMap((index) => nodes[index] ?? []).map((node) => boxWidth(node, density)));
  return indices.flatMap((index, i) => {
    const shown = nodes[index];
    if (shown === undefined) return [];
    const line = Math.floor(i / across);
    const inLine = Math.min(across, indices.length - line * across);
    const x = column.x + column.width / 2 + ((i % across) - (inLine - 1) / 2) * (widest + GAP);
    const y = row.y + row.height / 2 + (line - (lines - 1) / 2) * (nodeHeight + VERTICAL_GAP);
    const width = boxWidth(shown, density);
    const size = isWord(shown)
      ? { width: Math.min(column.width, width), height: TOKEN_HEIGHT }
      : { width, height: isPlain(shown) ? NODE_HEIGHT : EXPERT_HEIGHT };
    return [{ shown, index, x, y, ...size }];
  });
}

function columnsEnd(columns: readonly LayoutColumn[]): number {
  const right = columns.at(-1);
  return right === undefined ? 0 : right.x + right.width + MARGIN;
}

/** `available`: width in which the graph should fit. Nodes become narrower and are stacked for it, within limits. */
export function layoutCircuit(graph: CircuitGraph, { nodes }: ShownGraph, available = Infinity): Layout {
  const cells = groupByCell(graph, nodes);
  const fits = (density: Density) => columnsEnd(layoutColumns(graph, nodes, cells, density)) <= available;
  const density = DENSITIES.find(fits) ?? DENSEST;
  const columns = layoutColumns(graph, nodes, cells, density);
  const rows = layoutRows(graph, nodes, cells, density);
  const placed = [...cells].flatMap(([key, indices]) => {
    const row = rows.find(({ name }) => key.startsWith(`${name}/`));
    const column = columns[cellPosition(key)];
    return row === undefined || column === undefined ? [] : placeCell(nodes, indices, row, column, density);
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

/** A text through several layers: the strongest experts of each layer on each token. */

import type { RunRouting, RunSummary } from "@/api/types";
import { formatSigned } from "@/lib/text/format";
import { isNamed } from "@/pages/prompt/expert-name";
import {
  type Column,
  filterByDensity,
  type HeatCell,
  heatRows,
  type HeatRow,
  scaleEnd,
} from "@/pages/prompt/routing/heat-map/heat-rows";

/** Experts of each layer in the path of a token; the table shows the first one. */
export const TRACED_EXPERTS = 3;

interface TracedExpert {
  readonly row: HeatRow;
  readonly cell: HeatCell;
}

/** A cell of the table: the strongest expert of a run on a token. */
export interface TracedCell {
  readonly run: string;
  readonly position: number;
  readonly expert: number;
}

export interface TraceLayer {
  readonly run: string;
  readonly layer: number;
  /** End of the layer's colour scale. */
  readonly end: number;
  /** By position, in order of share × rarity. */
  readonly tokens: ReadonlyMap<number, readonly TracedExpert[]>;
}

function tracedExperts(rows: readonly HeatRow[], position: number): readonly TracedExpert[] {
  return rows
    .flatMap((row) => {
      const cell = row.cells.get(position);
      return cell === undefined ? [] : [{ row, cell }];
    })
    .sort((a, b) => b.cell.share * b.row.rarity - a.cell.share * a.row.rarity)
    .slice(0, TRACED_EXPERTS);
}

/** From the last layer to the first. Experts above `density` percent are left out. */
export function traceLayers(
  routings: readonly RunRouting[],
  runs: readonly Pick<RunSummary, "name" | "layer">[],
  columns: readonly Column[],
  density: number,
): readonly TraceLayer[] {
  const layers = routings.flatMap(({ run, tokens: routed, experts }): readonly TraceLayer[] => {
    const layer = runs.find(({ name }) => name === run)?.layer;
    if (layer === undefined) return [];
    const own = columns.flatMap(({ position }) => {
      const token = routed[position];
      return token === undefined ? [] : [{ position, token }];
    });
    const rows = filterByDensity(heatRows(own, experts, "specific"), density);
    const tokens = new Map(own.map(({ position }) => [position, tracedExperts(rows, position)] as const));
    return [{ run, layer, end: scaleEnd(rows), tokens }];
  });
  return layers.sort((a, b) => b.layer - a.layer);
}

/** The table of the strongest experts, for a snapshot. */
export const sharedLayers = (columns: readonly Column[], layers: readonly TraceLayer[]) => ({
  columns: columns.map(({ token }) => token.text),
  rows: layers.map(({ run, tokens }) => ({
    run,
    cells: columns.flatMap(({ position }, column) =>
      (tokens.get(position) ?? [])
        .slice(0, 1)
        .map(({ row: { expert }, cell }) => ({ column, expert, value: cell.activation })),
    ),
  })),
});

/** Width in pixels of a cell of the table, of the gap beside it, and of the column before the first one. */
export const CELL = { min: 96, narrow: 84, tight: 76, gap: 6, head: 60 } as const;

/**
 * Width of the cells in a box: the tokens share it if tight cells hold them, else as many of them as it can hold, so that
 * none is cut before the box scrolls.
 */
export function cellWidth(available: number, tokens: number, min: number): number {
  const room = available - CELL.head;
  const least = tokens * (CELL.tight + CELL.gap) <= room ? CELL.tight : min;
  const shown = Math.min(tokens, Math.max(1, Math.floor(room / (least + CELL.gap))));
  return Math.min(200, Math.floor(room / shown) - CELL.gap);
}

/** A cell, and what the chosen expert adds to its activation. */
export interface Fed extends TracedCell {
  readonly change: number;
  /** Relative to the cell's activation. */
  readonly share: number;
  /** Whether the cell's expert has a label that is not weak. */
  readonly isNamed: boolean;
}

/** The change to tell of: the largest one, or one at least half as large of an expert with a clear label. */
export const toldOf = (fed: readonly Fed[]): Fed | undefined =>
  fed.find(({ share, isNamed: clear }) => clear && 2 * Math.abs(share) >= Math.abs(fed[0]?.share ?? 0)) ?? fed[0];

/** For example `+7.6 %`, of the cell's activation. */
export const fedPercent = ({ share }: Pick<Fed, "share">) =>
  `${formatSigned(100 * share, Math.abs(share) < 0.1 ? 1 : 0)}\u202f%`;

/** The most cells that are marked, and the smallest change, relative to the cell and to the largest one. */
const MAX_FED = 12;
const MIN_SHARE = 0.001;
const MIN_OF_LARGEST = 0.2;
/** The server's limit of cells that are read; cells among which the one that feeds most is looked for. */
const MAX_READ = 1024;
const MAX_LEADS = 8;
/** Longer texts would be ablated too slowly. */
const MAX_LED_TOKENS = 64;

interface ReadCell extends TracedCell {
  readonly layer: number;
  readonly activation: number;
  /** Share × rarity. */
  readonly specific: number;
  readonly isNamed: boolean;
}

/** The strongest expert of each layer and token, with its activation. */
export const readCells = (layers: readonly TraceLayer[]): readonly ReadCell[] =>
  layers
    .flatMap(({ run, layer, tokens }) =>
      [...tokens].flatMap(([position, [first]]): readonly ReadCell[] => {
        if (first === undefined) return [];
        const { row, cell } = first;
        const { expert, info, rarity } = row;
        const specific = cell.share * rarity;
        return [{ run, layer, position, expert, activation: cell.activation, specific, isNamed: isNamed(info) }];
      }),
    )
    .slice(0, MAX_READ);

/** The cells below the last layer with a clear label, then those with the largest share × rarity, while none is chosen. */
export function leadCells(cells: readonly ReadCell[]): readonly TracedCell[] {
  const last = Math.max(...cells.map(({ layer }) => layer));
  const below = cells.filter(({ layer }) => layer < last);
  if (cells.filter(({ layer }) => layer === last).length > MAX_LED_TOKENS) return [];
  return below.toSorted((a, b) => Number(b.isNamed) - Number(a.isNamed) || b.specific - a.specific).slice(0, MAX_LEADS);
}

/**
 * The later cells, on the cell's token and those after it, with the largest relative changes. `changes`: of the read
 * cells' activations when the cell's expert is ablated.
 */
export function strongestFed(
  cells: readonly ReadCell[],
  { run, position: from }: TracedCell,
  changes: readonly number[],
): readonly Fed[] {
  const own = cells.find((cell) => cell.run === run)?.layer ?? Infinity;
  const fed = cells
    .flatMap(({ layer, activation, run: later, position, expert, isNamed: clear }, index): readonly Fed[] => {
      const change = -(changes[index] ?? 0);
      return layer > own && position >= from
        ? [{ run: later, position, expert, change, share: change / activation, isNamed: clear }]
        : [];
    })
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  const least = Math.max(MIN_SHARE, MIN_OF_LARGEST * Math.abs(fed[0]?.share ?? 0));
  return fed.filter(({ share }) => Math.abs(share) >= least).slice(0, MAX_FED);
}

/** A text through several layers: the strongest experts of each layer on each token. */

import type { GroupEffect, RunRouting, RunSummary } from "@/api/types";
import { formatFixed } from "@/lib/text/format";
import {
  type Column,
  filterByDensity,
  type HeatCell,
  heatRows,
  type HeatRow,
  scaleEnd,
} from "@/pages/prompt/routing/heat-map/heat-rows";

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

/** The experts on a token that pass the density filter, in order of share × rarity. */
const tracedExperts = (rows: readonly HeatRow[], position: number): readonly TracedExpert[] =>
  rows
    .flatMap((row) => {
      const cell = row.cells.get(position);
      return cell === undefined ? [] : [{ row, cell }];
    })
    .sort((a, b) => b.cell.share * b.row.rarity - a.cell.share * a.row.rarity);

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
export const CELL = { min: 84, tight: 76, gap: 6, head: 70 } as const;

/**
 * Width of the cells in a box: the tokens share it if tight cells hold them, else as many of them as it can hold, so that
 * none is cut before the box scrolls.
 */
export function cellWidth(available: number, tokens: number): number {
  const room = available - CELL.head;
  const least = tokens * (CELL.tight + CELL.gap) <= room ? CELL.tight : CELL.min;
  const shown = Math.min(tokens, Math.max(1, Math.floor(room / (least + CELL.gap))));
  return Math.min(200, Math.floor(room / shown) - CELL.gap);
}

/** What names a cell in the table and its curves. */
export const cellKey = ({ run, position }: Pick<TracedCell, "run" | "position">) => `${run} ${position}`;

/** A cell with its strongest expert. */
export interface ReadCell extends TracedCell {
  readonly layer: number;
  readonly info: HeatRow["info"];
  readonly activation: number;
}

/** A cell, and what the chosen expert adds to its activation. */
export interface Fed extends ReadCell {
  readonly change: number;
  /** Relative to the cell's activation. */
  readonly share: number;
  /** How many of the controls change it less, and whether these are enough. */
  readonly weaker: number;
  readonly isClear: boolean;
}

/** An expert on a token, and how much it raises the logit of the next token. */
export interface Raiser {
  readonly layer: TraceLayer;
  readonly row: HeatRow;
  readonly cell: HeatCell;
  readonly effect: number;
}

/** By run: its experts on a token by the size of their effects, and their joint effect. */
export type Raisers = ReadonlyMap<string, { readonly joint: number; readonly experts: readonly Raiser[] }>;

/** The layers, with the experts on a token by their effects where these are measured, after the chosen expert. */
export const byEffect = (
  layers: readonly TraceLayer[],
  raisers: Raisers,
  position: number,
  chosen: TracedCell | null,
) =>
  layers.map((layer): TraceLayer => {
    const experts = raisers.get(layer.run)?.experts ?? layer.tokens.get(position) ?? [];
    const isChosen = ({ row }: TracedExpert) => chosen?.run === layer.run && chosen.expert === row.expert;
    const first = experts.toSorted((a, b) => Number(isChosen(b)) - Number(isChosen(a)));
    return { ...layer, tokens: new Map([...layer.tokens, [position, first]]) };
  });

/** For example `7.6 %`, of the cell's activation. */
export const percentOf = (share: number) =>
  `${formatFixed(100 * Math.abs(share), Math.abs(share) < 0.1 ? 1 : 0)}\u202f%`;

/** The most cells that are marked, and the smallest change, relative to the cell and to the largest one. */
const MAX_FED = 8;
const MIN_SHARE = 0.001;
const MIN_OF_LARGEST = 0.2;
/** The server's limits of cells that are read, of experts that are ablated together, and of groups of them. */
const MAX_READ = 1024;
const MAX_TOGETHER = 64;
/** Other experts with which a change is compared: as many as in every comparison with controls. */
const MAX_CONTROLS = 20;

/** The strongest expert of each layer and token. */
export const readCells = (layers: readonly TraceLayer[]): readonly ReadCell[] =>
  layers
    .flatMap(({ run, layer, tokens }) =>
      [...tokens].flatMap(([position, [first]]): readonly ReadCell[] => {
        if (first === undefined) return [];
        const { expert, info } = first.row;
        return [{ run, layer, position, expert, info, activation: first.cell.activation }];
      }),
    )
    .slice(0, MAX_READ);

/**
 * The later cells, on the cell's token and those after it, with the largest relative changes. `effect`: of ablating the
 * cell's expert on the read cells.
 */
export function strongestFed(
  cells: readonly ReadCell[],
  { run, position: from }: TracedCell,
  { activations: changes, weaker, clear }: Omit<GroupEffect, "target">,
): readonly Fed[] {
  const own = cells.find((cell) => cell.run === run)?.layer ?? Infinity;
  const fed = cells
    .flatMap((cell, index): readonly Fed[] => {
      const change = -(changes[index] ?? 0);
      if (cell.layer <= own || cell.position < from) return [];
      const compared = { weaker: weaker[index] ?? 0, isClear: clear[index] === true };
      return [{ ...cell, change, share: change / cell.activation, ...compared }];
    })
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  const least = Math.max(MIN_SHARE, MIN_OF_LARGEST * Math.abs(fed[0]?.share ?? 0));
  return fed.filter(({ share }) => Math.abs(share) >= least).slice(0, MAX_FED);
}

function expertsAt(routings: readonly RunRouting[], run: string, position: number) {
  const active = routings.find((routing) => routing.run === run)?.tokens[position]?.experts ?? [];
  return active.filter(({ activation }) => activation > 0).map((routed) => ({ run, position, ...routed }));
}

/** The strongest other experts of the cell's token, with whose changes its own are compared. */
export const controlsOf = (routings: readonly RunRouting[], { run, position, expert }: TracedCell) =>
  expertsAt(routings, run, position)
    .filter((other) => other.expert !== expert)
    .slice(0, MAX_CONTROLS);

/** What is ablated in a layer on a token: its experts together, then each by itself, those with the largest share. */
export function ablationsOf(routings: readonly RunRouting[], run: string, position: number) {
  const active = expertsAt(routings, run, position).sort((a, b) => b.share - a.share);
  if (active.length === 0) return [];
  const single = active.slice(0, MAX_TOGETHER - 1).map((expert) => [expert]);
  return [active.slice(0, MAX_TOGETHER), ...single];
}

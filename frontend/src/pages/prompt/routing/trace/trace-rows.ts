/** A text through several layers: the strongest experts of each layer on each token. */

import type { RunRouting, RunSummary } from "@/api/types";
import { formatFixed } from "@/lib/text/format";
import { expertName, FUNCTION_WORDS, trustOf } from "@/pages/prompt/expert-name";
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

/** What names a cell in the table and its curves. */
export const cellKey = ({ run, position }: Pick<TracedCell, "run" | "position">) => `${run} ${position}`;

/** Whether a cell's name is next to it already: in the cell on its left, or in the one below. */
export function isRepeat(layers: readonly TraceLayer[], columns: readonly Column[], layer: number, column: number) {
  const [name, ...beside] = [[0, 0] as const, [0, 1] as const, [1, 0] as const].map(([down, left]) => {
    const first = layers[layer + down]?.tokens.get(columns[column - left]?.position ?? -1)?.[0];
    return first && expertName(first.row.info);
  });
  return name !== undefined && beside.includes(name);
}

/** A cell with its strongest expert. */
export interface ReadCell extends TracedCell {
  readonly layer: number;
  readonly info: HeatRow["info"];
  readonly name: string;
  /** How well the name describes the expert, from 0 to 1. */
  readonly trust: number;
  readonly activation: number;
  /** Share × rarity. */
  readonly specific: number;
}

/** A cell, and what the chosen expert adds to its activation. */
export interface Fed extends ReadCell {
  readonly change: number;
  /** Relative to the cell's activation. */
  readonly share: number;
}

/** The content words of a name by their first letters: the quoted ones, if it quotes some. */
function subjectsOf(name: string): readonly string[] {
  const quoted = [...name.matchAll(/“([^”]+)”/g)].map(([, words]) => words).join(" ");
  const words = (quoted || name).toLowerCase().match(/\p{L}{3,}|\p{Lo}+/gu) ?? [];
  return words.filter((word) => !FUNCTION_WORDS.has(word)).map((word) => word.slice(0, 4));
}

/** Whether two names share a subject: that one of these experts raises the other is no surprise. */
const isTrivial = (a: string, b: string) => subjectsOf(a).some((word) => subjectsOf(b).includes(word));

/** Whether a name is trusted and has a subject. */
const isTellable = ({ name, trust }: ReadCell) => trust > 0 && subjectsOf(name).length > 0;

/** The change to tell of: the largest one × trust in its expert's name, else the largest one; trivial ones come last. */
export function toldOf(fed: readonly Fed[], source: string): Fed | undefined {
  const surprising = fed.filter(({ name }) => !isTrivial(name, source));
  const size = ({ share, trust }: Fed) => Math.abs(share) * trust;
  const [best] = surprising.filter(isTellable).toSorted((a, b) => size(b) - size(a));
  return best ?? surprising[0] ?? fed[0];
}

/** For example `7.6 %`, of the cell's activation. */
export const percentOf = (share: number) =>
  `${formatFixed(100 * Math.abs(share), Math.abs(share) < 0.1 ? 1 : 0)}\u202f%`;

/** The most cells that are marked, and the smallest change, relative to the cell and to the largest one. */
const MAX_FED = 12;
const MIN_SHARE = 0.001;
const MIN_OF_LARGEST = 0.2;
/** The smallest rise that a headline tells of. */
const MIN_TOLD = 0.01;
/** The server's limits of cells that are read and of experts that are ablated together. */
const MAX_READ = 1024;
const MAX_TOGETHER = 64;
/** Cells among which that of a headline is looked for, and other experts with which an effect is compared. */
const MAX_LEADS = 24;
const MAX_CONTROLS = 8;
/** Longer texts would be ablated too slowly. */
const MAX_LED_TOKENS = 64;

/** The strongest expert of each layer and token. */
export const readCells = (layers: readonly TraceLayer[]): readonly ReadCell[] =>
  layers
    .flatMap(({ run, layer, tokens }) =>
      [...tokens].flatMap(([position, [first]]): readonly ReadCell[] => {
        if (first === undefined) return [];
        const { expert, info, rarity } = first.row;
        const { activation, share } = first.cell;
        const named = { info, name: expertName(info), trust: trustOf(info) };
        return [{ run, layer, position, expert, ...named, activation, specific: share * rarity }];
      }),
    )
    .slice(0, MAX_READ);

/** The cells below the last layer of which a headline may tell, with the largest share × rarity × trust. */
export function leadCells(cells: readonly ReadCell[]): readonly ReadCell[] {
  const last = Math.max(...cells.map(({ layer }) => layer));
  const below = cells.filter((cell) => cell.layer < last && isTellable(cell));
  if (cells.filter(({ layer }) => layer === last).length > MAX_LED_TOKENS) return [];
  const size = ({ specific, trust }: ReadCell) => specific * trust;
  return below.toSorted((a, b) => size(b) - size(a)).slice(0, MAX_LEADS);
}

/**
 * The later cells, on the cell's token and those after it, by relative change. `changes`: of the read cells' activations
 * when the cell's expert is ablated.
 */
function allFed(cells: readonly ReadCell[], { run, position: from }: TracedCell, changes: readonly number[]) {
  const own = cells.find((cell) => cell.run === run)?.layer ?? Infinity;
  return cells
    .flatMap((cell, index): readonly Fed[] => {
      const change = -(changes[index] ?? 0);
      return cell.layer > own && cell.position >= from ? [{ ...cell, change, share: change / cell.activation }] : [];
    })
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
}

/** The largest of these changes. */
export function strongestFed(...of: Parameters<typeof allFed>): readonly Fed[] {
  const fed = allFed(...of);
  const least = Math.max(MIN_SHARE, MIN_OF_LARGEST * Math.abs(fed[0]?.share ?? 0));
  return fed.filter(({ share }) => Math.abs(share) >= least).slice(0, MAX_FED);
}

/**
 * What to tell of before a cell is chosen: the largest rise × trust in both names between cells of different subjects;
 * one on another token counts twice. `changes`: of the read cells, for each of `sources`.
 */
export function headlineOf(
  cells: readonly ReadCell[],
  sources: readonly ReadCell[],
  changes: readonly (readonly number[])[],
): { readonly cell: ReadCell; readonly fed: readonly Fed[]; readonly told: Fed } | undefined {
  const found = sources.flatMap((cell, i) =>
    allFed(cells, cell, changes[i] ?? [])
      .filter((told) => told.share >= MIN_TOLD && isTellable(told) && !isTrivial(told.name, cell.name))
      .map((told) => {
        const distance = told.position === cell.position ? 1 : 2;
        return { cell, fed: [told], told, size: told.share * Math.sqrt(cell.trust * told.trust) * distance };
      }),
  );
  return found.toSorted((a, b) => b.size - a.size)[0];
}

function expertsAt(routings: readonly RunRouting[], run: string, position: number) {
  const active = routings.find((routing) => routing.run === run)?.tokens[position]?.experts ?? [];
  return active.slice(0, MAX_TOGETHER).map((routed) => ({ run, position, ...routed }));
}

/** The strongest other experts of the cell's token, with which a change is compared, each by itself. */
export const controlsOf = (routings: readonly RunRouting[], { run, position, expert }: TracedCell) =>
  expertsAt(routings, run, position)
    .filter((other) => other.expert !== expert && other.activation > 0)
    .slice(0, MAX_CONTROLS)
    .map((other) => [other]);

/** All experts of each layer on a token, without layers that have none there. */
export const expertsByLayer = (layers: readonly TraceLayer[], routings: readonly RunRouting[], position: number) =>
  layers
    .map(({ run, layer }) => expertsAt(routings, run, position).map((expert) => ({ layer, ...expert })))
    .filter((group) => group.length > 0);

/** A text through several layers: the strongest experts of each layer on each token. */

import type { RunRouting, RunSummary } from "@/api/types";
import { formatFixed } from "@/lib/text/format";
import { expertName, trustOf } from "@/pages/prompt/expert-name";
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

/**
 * The sides on which a cell is one box with its neighbour, such as `left right`: one expert on tokens that follow each
 * other, else experts of layers that follow each other with one clear name.
 */
export function joinedSides(layers: readonly TraceLayer[], columns: readonly Column[], layer: number, column: number) {
  const at = (down: number, right: number) =>
    layers[layer + down]?.tokens.get(columns[column + right]?.position ?? -1)?.[0]?.row;
  const isOne = (a: HeatRow | undefined, b: HeatRow | undefined) => a !== undefined && a.expert === b?.expert;
  const isWide = (down: number) => [-1, 1].some((right) => isOne(at(down, 0), at(down, right)));
  const isNamesake = (down: number) => {
    const [here, other] = [at(0, 0), at(down, 0)];
    const isClear = here !== undefined && other !== undefined && trustOf(here.info) > 0;
    return isClear && expertName(here.info) === expertName(other.info) && !isWide(0) && !isWide(down);
  };
  const left = isOne(at(0, 0), at(0, -1));
  const sides = { left, right: isOne(at(0, 0), at(0, 1)), above: isNamesake(-1), below: isNamesake(1) };
  const joined = Object.entries(sides).flatMap(([side, isJoined]) => (isJoined ? [side] : []));
  return joined.length === 0 ? undefined : joined.join(" ");
}

/** A cell, and what the chosen expert adds to its activation. */
export interface Fed extends TracedCell {
  readonly change: number;
  /** Relative to the cell's activation. */
  readonly share: number;
  readonly name: string;
  /** How well the name of the cell's expert describes it, from 0 to 1. */
  readonly trust: number;
}

const wordsOf = (name: string): readonly string[] => name.toLowerCase().match(/\p{L}{3,}/gu) ?? [];

/** Whether two names share a word: that one of these experts raises the other is no surprise. */
export const isTrivial = (a: string, b: string) => wordsOf(a).some((word) => wordsOf(b).includes(word));

/** The change to tell of: the largest one × trust in its expert's name, else the largest one; trivial ones come last. */
export function toldOf(fed: readonly Fed[], source: string): Fed | undefined {
  const surprising = fed.filter(({ name }) => !isTrivial(name, source));
  const size = ({ share, trust }: Fed) => Math.abs(share) * trust;
  const [best] = surprising.toSorted((a, b) => size(b) - size(a));
  return best !== undefined && best.trust > 0 ? best : (surprising[0] ?? fed[0]);
}

/** For example `7.6 %`, of the cell's activation. */
export const percentOf = (share: number) =>
  `${formatFixed(100 * Math.abs(share), Math.abs(share) < 0.1 ? 1 : 0)}\u202f%`;

/** The most cells that are marked, and the smallest change, relative to the cell and to the largest one. */
const MAX_FED = 12;
const MIN_SHARE = 0.001;
const MIN_OF_LARGEST = 0.2;
/** The server's limit of cells that are read; cells among which the one that feeds most is looked for. */
const MAX_READ = 1024;
const MAX_LEADS = 24;
/** Longer texts would be ablated too slowly. */
const MAX_LED_TOKENS = 64;

interface ReadCell extends TracedCell, Pick<Fed, "name" | "trust"> {
  readonly layer: number;
  readonly activation: number;
  /** Share × rarity. */
  readonly specific: number;
}

/** The strongest expert of each layer and token, with its activation. */
export const readCells = (layers: readonly TraceLayer[]): readonly ReadCell[] =>
  layers
    .flatMap(({ run, layer, tokens }) =>
      [...tokens].flatMap(([position, [first]]): readonly ReadCell[] => {
        if (first === undefined) return [];
        const { row, cell } = first;
        const { expert, info, rarity } = row;
        const named = { name: expertName(info), trust: trustOf(info) };
        return [{ run, layer, position, expert, ...named, activation: cell.activation, specific: cell.share * rarity }];
      }),
    )
    .slice(0, MAX_READ);

/** The cells below the last layer with the largest share × rarity × trust, while none is chosen. */
export function leadCells(cells: readonly ReadCell[]): readonly ReadCell[] {
  const last = Math.max(...cells.map(({ layer }) => layer));
  const below = cells.filter(({ layer }) => layer < last);
  if (cells.filter(({ layer }) => layer === last).length > MAX_LED_TOKENS) return [];
  const size = ({ specific, trust }: ReadCell) => specific * (trust + 0.01);
  return below.toSorted((a, b) => size(b) - size(a)).slice(0, MAX_LEADS);
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
    .flatMap((cell, index): readonly Fed[] => {
      const change = -(changes[index] ?? 0);
      return cell.layer > own && cell.position >= from ? [{ ...cell, change, share: change / cell.activation }] : [];
    })
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  const least = Math.max(MIN_SHARE, MIN_OF_LARGEST * Math.abs(fed[0]?.share ?? 0));
  return fed.filter(({ share }) => Math.abs(share) >= least).slice(0, MAX_FED);
}

const MAX_CONTROLS = 8;

/** The strongest other experts of the cell's token, with which a change is compared. */
export function controlsOf(routings: readonly RunRouting[], { run, position, expert }: TracedCell) {
  const active = routings.find((routing) => routing.run === run)?.tokens[position]?.experts ?? [];
  const others = active.filter((other) => other.expert !== expert && other.activation > 0);
  return others.slice(0, MAX_CONTROLS).map((other) => other.expert);
}

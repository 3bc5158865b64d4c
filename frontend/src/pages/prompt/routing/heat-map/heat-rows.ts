/** Data of the heat map: rows, their order, the colour scale, and columns by token length. */

import type { PredictedToken, RoutedExpert, RoutedExpertInfo, RoutedToken, RoutingResponse } from "@/api/types";
import { isWeak, shownAutomatic } from "@/components/experts/expert-link";
import type { FigureTable } from "@/components/plots/figure";
import { axisLimit } from "@/lib/scales/colour-scale";
import { formatFixed, formatPercent } from "@/lib/text/format";
import { splitLeadingSpace, visibleText } from "@/lib/text/token-text";

export interface HeatCell {
  readonly activation: number;
  /** Share of the summed L2 norms of all active experts' outputs on this token. */
  readonly share: number;
  /** Rank among the token's active experts, starting at 1, and their number. */
  readonly rank: number;
  readonly activeExperts: number;
}

export interface HeatRow {
  readonly expert: number;
  readonly info: RoutedExpertInfo;
  /** By token index. */
  readonly cells: ReadonlyMap<number, HeatCell>;
  readonly sum: number;
  readonly largest: number;
  /** log₂(1 / density). Without an index, the density on this text. */
  readonly rarity: number;
}

export interface Column {
  /** Index into the tokens of the response. */
  readonly position: number;
  readonly token: RoutedToken;
}

/** Next-token distributions by position; undefined until loaded, after the routing. */
export type Predicted = readonly PredictedToken[] | undefined;

const UNKNOWN: RoutedExpertInfo = { label: null, automatic: null, density: null, max_activation: null, top_tokens: [] };

export function heatColumns(response: Pick<RoutingResponse, "tokens">, withStart: boolean): readonly Column[] {
  return response.tokens.map((token, position) => ({ position, token })).filter((c) => withStart || !c.token.start);
}

function cellsByExpert(columns: readonly Column[]): ReadonlyMap<number, ReadonlyMap<number, HeatCell>> {
  const cellsOf = new Map<number, Map<number, HeatCell>>();
  for (const { position, token } of columns) {
    for (const [i, { expert, activation, share }] of token.experts.entries()) {
      const cells = cellsOf.get(expert) ?? new Map<number, HeatCell>();
      cells.set(position, { activation, share, rank: i + 1, activeExperts: token.experts.length });
      cellsOf.set(expert, cells);
    }
  }
  return cellsOf;
}

/** log₂(1 / density), as the inverse document frequency of a term: experts that are active on most tokens come last. */
function rarity({ density }: RoutedExpertInfo, active: number, columns: number): number {
  const share = density === null || density <= 0 ? active / Math.max(1, columns) : density;
  return -Math.log2(Math.min(1, share));
}

interface Named {
  readonly info: RoutedExpertInfo | undefined;
}

/** Whether the label of a row is weak, or it has none; 1 or 0. */
export const weakness = ({ info = UNKNOWN }: Named): number => Number(isWeak(info.label, info.automatic));

/** Order of two rows: those with weak labels come last, unless they are mixed with the others. */
export const weakLast = (a: Named, b: Named, isMixed: boolean): number => (isMixed ? 0 : weakness(a) - weakness(b));

/** Whether a row is the first with a weak label after the others. */
export const isBreak = (row: Named, before: Named | undefined, isMixed: boolean): boolean =>
  before !== undefined && weakLast(before, row, isMixed) < 0;

/** By itself, without a text: all experts of unknown density are equally rare. */
export const rarityOf = (info: RoutedExpertInfo | undefined): number => rarity(info ?? UNKNOWN, 1, 2);

/** A token's active experts in order of activation × rarity. */
export function mostSpecific(
  { experts: active }: RoutedToken,
  experts: RoutingResponse["experts"],
): readonly RoutedExpert[] {
  const size = ({ expert, activation }: RoutedExpert) => activation * rarityOf(experts[expert]);
  return active.toSorted((a, b) => size(b) - size(a));
}

interface RankedBy {
  readonly name: string;
  /** Header of the last column, and what it shows. */
  readonly header: string;
  readonly text: (row: HeatRow, digits: number) => string;
  /** Larger ones come first. */
  readonly size: (row: HeatRow) => number;
}

export const RANKINGS = {
  specific: {
    name: "Specific",
    header: "Score",
    text: ({ largest, rarity: rare }) => formatFixed(largest * rare, 1),
    size: ({ largest, rarity: rare }) => largest * rare,
  },
  summed: {
    name: "Sum",
    header: "Sum",
    text: ({ sum }, digits) => formatFixed(sum, digits),
    size: ({ sum }) => sum,
  },
  largest: {
    name: "Max",
    header: "Max",
    text: ({ largest }, digits) => formatFixed(largest, digits),
    size: ({ largest }) => largest,
  },
  often: {
    name: "Frequency",
    header: "Tokens",
    text: ({ cells }) => String(cells.size),
    size: ({ cells }) => cells.size,
  },
  rarest: {
    name: "Rarity",
    header: "Density %",
    text: ({ info: { density } }) => (density === null ? "" : formatPercent(density, 2)),
    size: ({ info: { density } }) => -(density ?? Infinity),
  },
} as const satisfies Readonly<Record<string, RankedBy>>;

export type Ranking = keyof typeof RANKINGS;

/** The token of a row's largest activation. */
export const peakOf = ({ cells, largest }: HeatRow): number =>
  [...cells].find(([, { activation }]) => activation === largest)?.[0] ?? -1;

/**
 * The rows with the largest score on each token, then the second on each, and so on, so that one token with large
 * activations does not fill the view. A row counts for the token of its largest activation.
 */
function inTurn(rows: readonly HeatRow[]): readonly HeatRow[] {
  const counts = new Map<number, number>();
  const turns = rows.map((row) => {
    const peak = peakOf(row);
    const turn = counts.get(peak) ?? 0;
    counts.set(peak, turn + 1);
    return { row, turn };
  });
  return turns.sort((a, b) => a.turn - b.turn).map(({ row }) => row);
}

/** One row per expert that is active on any column, in ranking order; ties by sum, then id. */
export function heatRows(
  columns: readonly Column[],
  experts: RoutingResponse["experts"],
  ranking: Ranking,
): readonly HeatRow[] {
  const rows = [...cellsByExpert(columns)].map(([expert, cells]): HeatRow => {
    const info = experts[expert] ?? UNKNOWN;
    const activations = [...cells.values()].map((cell) => cell.activation);
    return {
      expert,
      info,
      cells,
      sum: activations.reduce((a, b) => a + b, 0),
      rarity: rarity(info, cells.size, columns.length),
      largest: Math.max(...activations),
    };
  });
  const { size } = RANKINGS[ranking];
  const compare = (a: HeatRow, b: HeatRow) => (size(a) === size(b) ? 0 : size(b) - size(a));
  rows.sort((a, b) => compare(a, b) || b.sum - a.sum || a.expert - b.expert);
  return ranking === "specific" ? inTurn(rows) : rows;
}

/** Rows of experts whose density is at most `usage` percent or unknown. */
export function filterByDensity(rows: readonly HeatRow[], density: number): readonly HeatRow[] {
  return density >= 100 ? rows : rows.filter((row) => row.info.density === null || 100 * row.info.density <= density);
}

/** Activation × rarity on a token; -1 for the rows that are not active there. */
const specificity = ({ cells, rarity }: HeatRow, position: number): number =>
  (cells.get(position)?.activation ?? -1) * (cells.has(position) ? rarity : 1);

/** Score of a row: on a token where it is active, else its largest. */
export const scoreAt = (row: HeatRow, position: number | null): number =>
  position !== null && row.cells.has(position) ? specificity(row, position) : RANKINGS.specific.size(row);

/** Rows as shown: those that are active on a locked token before the others, each group by its last column. */
export function inGroups(
  rows: readonly HeatRow[],
  ranking: Ranking,
  locked: number | null,
  isMixed: boolean,
): readonly HeatRow[] {
  const isOn = ({ cells }: HeatRow) => Number(locked !== null && cells.has(locked));
  const score = (row: HeatRow) => (ranking === "specific" ? scoreAt(row, locked) : 0); // the others are in order
  return rows.toSorted((a, b) => isOn(b) - isOn(a) || weakLast(a, b, isMixed) || score(b) - score(a));
}

/** The rows that are active on a token, by activation × rarity there, before the others. */
export function tokenFirst(rows: readonly HeatRow[], position: number | undefined): readonly HeatRow[] {
  if (position === undefined) return rows;
  return rows.toSorted((a, b) => specificity(b, position) - specificity(a, position));
}

/** The first rows, and the most specific one of each token on which none of them is active. */
export function shownRows(rows: readonly HeatRow[], columns: readonly Column[], count: number): readonly HeatRow[] {
  const shown = new Set(rows.slice(0, count));
  const covered = new Set([...shown].flatMap(({ cells }) => [...cells.keys()]));
  for (const { position } of columns) {
    if (covered.has(position)) continue;
    const active = rows.filter(({ cells }) => cells.has(position));
    const [best] = tokenFirst(active, position);
    if (best === undefined) continue;
    shown.add(best);
    for (const other of best.cells.keys()) covered.add(other);
  }
  return rows.filter((row) => shown.has(row));
}

/** End of the colour scale shared by all rows. */
export function scaleEnd(rows: readonly HeatRow[]): number {
  return axisLimit(rows.reduce((largest, row) => Math.max(largest, row.largest), 0));
}

/** Decimals per cell, so that values fit the narrowest column. */
export function cellDigits(end: number): number {
  if (end >= 100) return 0;
  return end >= 4 ? 1 : 2;
}

/** `.012`, `1.23`, `12.3`: fits the narrowest column. */
export function formatKl(kl: number): string {
  if (kl >= 10) return kl.toFixed(1);
  return kl >= 0.9995 ? kl.toFixed(2) : kl.toFixed(3).replace(/^0/, "");
}

/** Mean over the columns of the KL with the layer, or with the MLP zero-ablated, as text. */
export function meanKl(columns: readonly Column[], predicted: Predicted, key: "kl" | "zeroed_kl"): string {
  // As wide as a number: the sentence does not wrap again.
  if (predicted === undefined) return "…\u2007\u2007\u2007";
  const sum = columns.reduce((total, { position }) => total + (predicted[position]?.[key] ?? 0), 0);
  return (sum / Math.max(1, columns.length)).toFixed(3);
}

const CHARACTER_WIDTH = 7.7;
const PADDING = 12;
const MIN_WIDTH = 36;
const MAX_WIDTH = 132;
/** Scripts whose characters are twice as wide in a monospaced font. */
const WIDE_CHARACTERS =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/gu;

/** A token as a column header: without the leading space, other white space as symbols. */
export function columnText(text: string): string {
  return text === "" ? "…" : visibleText(splitLeadingSpace(text).body);
}

/** Width in whole pixels. */
export function columnWidth(text: string): number {
  const header = columnText(text);
  const characters = Array.from(header).length + (header.match(WIDE_CHARACTERS)?.length ?? 0);
  return Math.round(Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, characters * CHARACTER_WIDTH + PADDING)));
}

/** A range of columns, end exclusive. */
export interface ColumnWindow {
  readonly from: number;
  readonly to: number;
}

const CHUNK = 24;
/** Texts of up to this many tokens are rendered without virtualisation. */
const MAX_UNVIRTUALISED = 96;

/** Left edge of each column, and the right edge of the last one. */
export function columnOffsets(widths: readonly number[]): readonly number[] {
  const offsets = [0];
  for (const width of widths) offsets.push((offsets.at(-1) ?? 0) + width);
  return offsets;
}

/** Columns to render for a range of pixels: whole chunks, plus one on either side. */
export function visibleColumns(offsets: readonly number[], left: number, right: number): ColumnWindow {
  const count = offsets.length - 1;
  if (count <= MAX_UNVIRTUALISED) return { from: 0, to: count };
  const first = offsets.findIndex((offset) => offset > left) - 1;
  const after = offsets.findIndex((offset) => offset >= right);
  const chunkOf = (column: number) => Math.floor(column / CHUNK);
  return {
    from: Math.max(0, chunkOf(first < 0 ? count : first) - 1) * CHUNK,
    to: Math.min(count, (chunkOf(after < 0 ? count : after) + 2) * CHUNK),
  };
}

/** Columns of a routing as a table, with a row per token and active expert. */
const TABLE = [
  "position",
  "token",
  "KL from original, nats",
  "expert",
  "activation",
  "share of output norm",
  "label",
  "score if automatic",
];

/** The label by hand, or the automatic one with its score. */
function labelCells(info: RoutedExpertInfo | undefined): readonly [label: string, score: string] {
  const automatic = shownAutomatic(info?.automatic);
  return info?.label == null
    ? [automatic?.label ?? "", automatic?.balanced_accuracy?.toFixed(2) ?? ""]
    : [info.label, ""];
}

export function routingTable(response: RoutingResponse, predicted: Predicted, withStart: boolean): FigureTable {
  const rows = response.tokens.flatMap((token, position) =>
    token.start && !withStart
      ? []
      : token.experts.map((routed) => [
          String(position),
          token.text,
          predicted?.[position]?.kl.toFixed(4) ?? "",
          String(routed.expert),
          routed.activation.toFixed(4),
          routed.share.toFixed(4),
          ...labelCells(response.experts[routed.expert]),
        ]),
  );
  return { columns: TABLE, rows };
}

/** The part of Plotly's figure JSON that is used here: reading, escaping, conversion to a table, axes. */

import type { FigureData } from "@/api/types";

/** Escapes text for Plotly, which draws tags such as `<b>` and links in labels, tokens and names as markup. */

const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/** The value with every text in it escaped, also inside lists. Numbers and other values stay as they are. */
export function escapeMarkup(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(escapeMarkup);
  return typeof value === "string" ? value.replace(/[&<>]/g, (character) => ENTITIES[character] ?? character) : value;
}

/** The fields of these names with their texts escaped; only those that the object has. */
export function escapeFields(raw: Readonly<Record<string, unknown>>, names: readonly string[]): object {
  const present = names.filter((name) => name in raw);
  return Object.fromEntries(present.map((name) => [name, escapeMarkup(raw[name])]));
}

export interface Trace {
  readonly type: string;
  readonly name: string;
  readonly mode: string;
  readonly role: string;
  readonly x: readonly unknown[];
  readonly y: readonly unknown[];
  readonly text: readonly unknown[];
  readonly customdata: readonly unknown[];
  /** Lengths of the error bars below and above each point. */
  readonly bars: {
    readonly along: "x" | "y";
    readonly low: readonly unknown[];
    readonly high: readonly unknown[];
  } | null;
}

const text = (value: unknown, fallback = "") => (typeof value === "string" ? value : fallback);
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** `meta` is the role itself or an object with a `role`. */
function roleOf(meta: unknown): string {
  if (typeof meta === "object" && meta !== null && "role" in meta) return text(meta.role);
  return text(meta);
}

function barsOf({ error_x, error_y }: Readonly<Record<string, unknown>>): Trace["bars"] {
  const bars = error_x ?? error_y;
  if (typeof bars !== "object" || bars === null) return null;
  const { array, arrayminus } = bars as { readonly array?: unknown; readonly arrayminus?: unknown };
  return { along: bars === error_x ? "x" : "y", low: list(arrayminus), high: list(array) };
}

export function readTrace(raw: Readonly<Record<string, unknown>>): Trace {
  return {
    type: text(raw.type, "scatter"),
    name: text(raw.name),
    mode: text(raw.mode),
    role: roleOf(raw.meta),
    x: list(raw.x),
    y: list(raw.y),
    text: list(raw.text),
    customdata: list(raw.customdata),
    bars: barsOf(raw),
  };
}

/**
 * Headers of exported columns, in `layout.meta.columns`. By default, the titles of the axes name x and y. A column with
 * an empty name is left out.
 */
export interface ColumnNames {
  readonly series?: string;
  /** One name per part of the points' `customdata`. */
  readonly point?: readonly string[];
  readonly label?: string;
  readonly x?: string;
  readonly y?: string;
}

export interface FigureTable {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

type Layout = FigureData["layout"];

function axisTitle(layout: Layout, axis: string): string {
  const axisLayout = layout[axis];
  if (typeof axisLayout !== "object" || axisLayout === null || !("title" in axisLayout)) return "";
  const { title } = axisLayout;
  const name = typeof title === "object" && title !== null && "text" in title ? text(title.text) : text(title);
  return name.replace(/, log scale$/, "");
}

const cell = (value: unknown) => {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(5)));
  return typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value);
};

interface Column {
  readonly name: string;
  readonly valueOf: (trace: Trace, i: number) => unknown;
}

/** An end of a point's error bar. */
function barEnd({ x, y, bars }: Trace, i: number, end: "low" | "high"): number | null {
  const length = bars?.[end][i];
  if (bars === null || typeof length !== "number") return null;
  return Number((bars.along === "x" ? x : y)[i]) + (end === "low" ? -length : length);
}

function columnsOf(layout: Layout): readonly Column[] {
  const names = (layout.meta as { readonly columns?: ColumnNames } | undefined)?.columns ?? {};
  const point = names.point ?? ["point"];
  const part = (value: unknown, k: number) => (Array.isArray(value) ? (value as unknown[])[k] : value);
  return [
    { name: names.series ?? "series", valueOf: ({ name }) => name },
    ...point.map((name, k) => ({ name, valueOf: ({ customdata }: Trace, i: number) => part(customdata[i], k) })),
    { name: names.label ?? "label", valueOf: ({ text: texts }, i) => texts[i] },
    { name: names.x ?? (axisTitle(layout, "xaxis") || "x"), valueOf: ({ x }, i) => x[i] },
    { name: names.y ?? (axisTitle(layout, "yaxis") || "y"), valueOf: ({ y }, i) => y[i] },
    { name: "interval low", valueOf: (trace, i) => barEnd(trace, i, "low") },
    { name: "interval high", valueOf: (trace, i) => barEnd(trace, i, "high") },
  ];
}

/** One row per point: series, point, label, x, y and interval. Empty columns and traces without a tip are left out. */
export function figureTable(figure: Pick<FigureData, "data" | "layout">): FigureTable {
  const columns = columnsOf(figure.layout).filter(({ name }) => name !== "");
  const traces = figure.data.filter(({ hoverinfo }) => hoverinfo !== "skip").map(readTrace);
  const rows = traces.flatMap((trace) => trace.x.map((_, i) => columns.map(({ valueOf }) => cell(valueOf(trace, i)))));
  const isUsed = columns.map((_, column) => rows.some((row) => row[column] !== ""));
  const used = <T>(values: readonly T[]) => values.filter((_, column) => isUsed[column]);
  return { columns: used(columns.map(({ name }) => name)), rows: rows.map(used) };
}

const quoteCell = (value: string) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

export function toCsv(table: FigureTable): string {
  return [table.columns, ...table.rows].map((row) => row.map(quoteCell).join(",")).join("\r\n") + "\r\n";
}

type Cell = string | number | null | undefined;

/** One row per record, whose fields are the columns. Missing values are empty. */
export function recordsCsv(records: readonly Readonly<Record<string, Cell>>[]): string {
  const columns = Object.keys(records[0] ?? {});
  return toCsv({ columns, rows: records.map((record) => columns.map((name) => String(record[name] ?? ""))) });
}

/** Axes: density in percent, horizontal titles. */

/** The title of a y axis as a horizontal annotation in its upper corner. */
export function cornerTitle(text: string): Readonly<Record<string, unknown>> {
  const place = { xref: "paper", yref: "paper", x: 0.008, y: 0.99, xanchor: "left", yanchor: "top" };
  return { text, name: "corner", showarrow: false, ...place };
}

const DECADES = [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100];

/** The axis of densities in percent. */
export const DENSITY_AXIS = {
  type: "log",
  title: { text: "activation density, % of tokens, log scale" },
  tickvals: DECADES,
  ticktext: DECADES.map((percent) => percent.toFixed(5).replace(/\.?0+$/, "")),
} as const;

/** The value with every number in it in percent, also inside lists. */
export function inPercent(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inPercent);
  return typeof value === "number" ? 100 * value : value;
}

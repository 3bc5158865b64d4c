/** The part of Plotly's figure JSON that is used here, and its conversion to a table. */

import type { FigureData } from "@/api/types";

export interface Trace {
  readonly type: string;
  readonly name: string;
  readonly mode: string;
  readonly role: string;
  readonly x: readonly unknown[];
  readonly y: readonly unknown[];
  readonly text: readonly unknown[];
  readonly customdata: readonly unknown[];
}

const text = (value: unknown, fallback = "") => (typeof value === "string" ? value : fallback);
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** `meta` is the role itself or an object with a `role`. */
function roleOf(meta: unknown): string {
  if (typeof meta === "object" && meta !== null && "role" in meta) return text(meta.role);
  return text(meta);
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
  };
}

export interface FigureTable {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

function axisTitle(layout: Readonly<Record<string, unknown>>, axis: string): string {
  const axisLayout = layout[axis];
  if (typeof axisLayout !== "object" || axisLayout === null || !("title" in axisLayout)) return "";
  const { title } = axisLayout;
  if (typeof title === "object" && title !== null && "text" in title) return text(title.text);
  return text(title);
}

const cell = (value: unknown) => {
  if (typeof value === "number")
    return Number.isInteger(value) ? String(value) : value.toPrecision(5).replace(/\.?0+$/, "");
  return typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value);
};

/** One row per point: series, point, label, x and y. Empty columns are dropped. */
export function figureTable(figure: Pick<FigureData, "data" | "layout">): FigureTable {
  const x = axisTitle(figure.layout, "xaxis") || "x";
  const y = axisTitle(figure.layout, "yaxis") || "y";
  const columns = ["series", "point", "label", x, y];
  const rows = figure.data
    .map(readTrace)
    .flatMap((trace) =>
      trace.x.map((value, i) => [
        trace.name,
        cell(trace.customdata[i]),
        cell(trace.text[i]),
        cell(value),
        cell(trace.y[i]),
      ]),
    );
  const isUsed = columns.map((_, column) => column > 2 || rows.some((row) => row[column] !== ""));
  const dropUnused = <T>(values: readonly T[]) => values.filter((_, column) => isUsed[column]);
  return { columns: dropUnused(columns), rows: rows.map(dropUnused) };
}

const quoteCell = (value: string) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

export function toCsv(table: FigureTable): string {
  return [table.columns, ...table.rows].map((row) => row.map(quoteCell).join(",")).join("\r\n") + "\r\n";
}

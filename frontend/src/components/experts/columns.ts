/** Columns of the experts, as the server declares them: values as text, and filters. */

import type { Column, ExpertRow } from "@/api/types";

import { formatCount, formatFixed, formatFoundAgain, formatShare, formatSigned } from "@/lib/text/format";

const NUMERIC: readonly Column["kind"][] = ["count", "number", "share", "difference"];

export const isNumeric = (column: Column) => NUMERIC.includes(column.kind);

/** Whether the table of experts shows it. */
export const inTable = (column: Column) => column.shown.includes("table");

/** The number and the label of an expert are always shown. */
export const canBeHidden = (column: Column) => inTable(column) && column.key !== "expert" && column.key !== "label";

export const valueOf = (column: Column, row: ExpertRow): unknown => row[column.key as keyof ExpertRow];

/** A number as text, without its unit; a dash if it was not measured. */
export function formatValue(column: Column, row: ExpertRow): string {
  const value = valueOf(column, row);
  if (typeof value !== "number") return "–";
  if (column.key === "recurrence") return formatFoundAgain(row);
  if (column.kind === "share") return formatShare(value, column.digits);
  if (column.kind === "difference") return formatSigned(value, column.digits);
  if (column.kind === "number") return formatFixed(value, column.digits);
  return column.kind === "count" ? formatCount(value) : String(value);
}

/** A value for files, with full precision: empty if it was not measured. Tokens are a JSON list, as they hold spaces. */
export function fileValue(column: Column, row: ExpertRow): string | number {
  if (column.kind === "tokens") return JSON.stringify(row.top_tokens.map((token) => token.text));
  const value = valueOf(column, row);
  if (Array.isArray(value)) return value.join(column.kind === "tags" ? "; " : " ");
  return typeof value === "number" || typeof value === "string" ? value : "";
}

/** A bound on a column. */
export interface Filter {
  readonly name: string;
  readonly column: Column;
  readonly label: string;
  readonly title: string;
  readonly sign: "≥" | "≤";
  readonly unit: string;
  /** Factor from the parameter's value to the displayed unit. */
  readonly scale: number;
}

export function filtersOf(columns: readonly Column[]): readonly Filter[] {
  return columns.flatMap((column) =>
    column.filters.map(({ name, end }) => ({
      name,
      column,
      label: column.title.toLowerCase(),
      title: `${column.title} at ${end === "min" ? "least" : "most"}`,
      sign: end === "min" ? "≥" : "≤",
      unit: column.unit ?? "",
      scale: column.kind === "share" ? 100 : 1,
    })),
  );
}

/** A bound in its unit, with at most four decimals. */
export const formatBound = ({ scale }: Filter, value: number) => formatFixed(value * scale, 4).replace(/\.?0+$/, "");

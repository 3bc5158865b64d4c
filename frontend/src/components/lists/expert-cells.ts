/** Columns of the experts of an exported list. */

import type { Column, ExpertRow } from "@/api/types";
import { fileValue, isStatistic } from "@/components/experts/columns";

const inLists = (column: Column) =>
  isStatistic(column) || ["expert", "label", "automatic", "tags", "top_tokens"].includes(column.key);

/** Values by column. */
export function expertCells(row: ExpertRow, columns: readonly Column[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    columns
      .filter(inLists)
      .map((column) =>
        column.kind === "label"
          ? ["automatic_label", row.automatic?.label ?? ""]
          : [column.key, String(fileValue(column, row))],
      ),
  );
}

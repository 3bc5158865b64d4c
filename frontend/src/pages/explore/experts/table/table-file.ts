/** Export of the experts table: the visible columns, with full precision. */

import type { Column, ExpertRow } from "@/api/types";
import { canBeHidden, fileValue } from "@/components/experts/columns";

const LABEL_COLUMNS: Readonly<Record<string, (row: ExpertRow) => string | number>> = {
  expert: (row) => row.expert,
  label: (row) => row.label ?? "",
  automatic_label: (row) => row.automatic?.label ?? "",
  automatic_label_score: (row) => row.automatic?.balanced_accuracy ?? "",
  automatic_label_precision: (row) => row.automatic?.precision ?? "",
  automatic_label_recall: (row) => row.automatic?.recall ?? "",
};

/** Values by column. The upper end of the histogram follows it. */
export function tableRow(
  row: ExpertRow,
  columns: readonly Column[],
  hidden: readonly string[],
): Readonly<Record<string, string | number>> {
  const labels = Object.entries(LABEL_COLUMNS).map(([name, read]) => [name, read(row)] as const);
  const isExported = ({ key, kind }: Column) =>
    kind === "bound" ? !hidden.includes("histogram") : !hidden.includes(key);
  const shown = columns.filter((column) => (canBeHidden(column) || column.kind === "bound") && isExported(column));
  return Object.fromEntries([...labels, ...shown.map((column) => [column.key, fileValue(column, row)] as const)]);
}

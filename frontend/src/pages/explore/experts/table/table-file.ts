/** Export of the experts table: the visible columns, with full precision. */

import type { ExpertRow } from "@/api/types";
import type { OptionalColumn } from "@/pages/explore/experts/experts-params";

const LABEL_COLUMNS = [
  "label",
  "automatic_label",
  "automatic_label_score",
  "automatic_label_precision",
  "automatic_label_recall",
] as const;

type FileColumn = "expert" | (typeof LABEL_COLUMNS)[number] | OptionalColumn | "histogram_high";

/** The upper end of the histogram follows it. */
export function tableColumns(shown: readonly OptionalColumn[]): readonly FileColumn[] {
  const values = shown.flatMap((column) => (column === "histogram" ? [column, "histogram_high" as const] : [column]));
  return ["expert", ...LABEL_COLUMNS, ...values];
}

/** Values that have not been measured are empty instead of 0. Top tokens are a JSON list, since they contain spaces. */
export function tableRow(row: ExpertRow, columns: readonly FileColumn[]): readonly (string | number)[] {
  const cells: Readonly<Record<FileColumn, string | number>> = {
    expert: row.expert,
    label: row.label ?? "",
    automatic_label: row.automatic?.label ?? "",
    automatic_label_score: row.automatic?.balanced_accuracy ?? "",
    automatic_label_precision: row.automatic?.precision ?? "",
    automatic_label_recall: row.automatic?.recall ?? "",
    density: row.density,
    mean_activation: row.mean_activation,
    max_activation: row.max_activation,
    entropy: row.entropy,
    loss_increase: row.loss_increase ?? "",
    kl_amplified: row.kl_amplified ?? "",
    recurrence: row.recurrence ?? "",
    top_tokens: JSON.stringify(row.top_tokens.map((token) => token.text)),
    histogram: row.histogram.join(" "),
    histogram_high: row.histogram_high,
  };
  return columns.map((column) => cells[column]);
}

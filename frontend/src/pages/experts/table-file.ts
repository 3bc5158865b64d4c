/** Columns and cells of the experts table in a file: those on screen, numbers in full. */

import type { ExpertRow } from "@/api/types";

import type { OptionalColumn } from "./experts-params";

export function tableColumns(shown: readonly OptionalColumn[]): readonly string[] {
  return ["expert", "label", "automatic_label", ...shown];
}

/** Figures that have not been measured are empty, not nought. */
export function tableRow(row: ExpertRow, columns: readonly string[]): readonly (string | number)[] {
  const cells: Readonly<Record<string, string | number>> = {
    expert: row.expert,
    label: row.label ?? "",
    automatic_label: row.automatic?.label ?? "",
    usage: row.usage,
    mean: row.mean,
    largest: row.largest,
    entropy: row.entropy,
    added_loss: row.measured ? row.added_loss : "",
    kl_up: row.measured ? row.kl_up : "",
    top_tokens: row.top_tokens.map((token) => token.text).join(" "),
    histogram: row.histogram.join(" "),
  };
  return columns.map((column) => cells[column] ?? "");
}

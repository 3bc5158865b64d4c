/** Experts as rows of a file: the same columns and names for every list and table of them. */

import type { ExpertRow } from "@/api/types";

export const EXPERT_COLUMNS = [
  "expert",
  "label",
  "automatic_label",
  "tags",
  "usage",
  "active_tokens",
  "mean",
  "largest",
  "p99",
  "entropy",
  "top_tokens",
] as const;

export function expertCells(row: ExpertRow): readonly string[] {
  return [
    String(row.expert),
    row.label ?? "",
    row.automatic?.label ?? "",
    row.tags.join("; "),
    ...[row.usage, row.active_tokens, row.mean, row.largest, row.p99, row.entropy].map(String),
    row.top_tokens.map((token) => token.text).join(" "),
  ];
}

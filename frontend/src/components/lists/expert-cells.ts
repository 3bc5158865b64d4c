/** Columns of the experts of an exported list. Top tokens are a JSON list, since they contain spaces. */

import type { ExpertRow } from "@/api/types";

export const EXPERT_COLUMNS = [
  "expert",
  "label",
  "automatic_label",
  "tags",
  "density",
  "active_tokens",
  "mean_activation",
  "max_activation",
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
    ...[row.density, row.active_tokens, row.mean_activation, row.max_activation, row.p99, row.entropy].map(String),
    JSON.stringify(row.top_tokens.map((token) => token.text)),
  ];
}

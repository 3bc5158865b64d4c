/** Export of a passage search: the rows on screen, in their order. */

import type { PassageResult } from "@/api/types";
import { toCsv } from "@/components/plots/figure/figure-data";

const COLUMNS = [
  "expert",
  "label",
  "automatic_label",
  "mass",
  "share",
  "lift",
  "lift_low",
  "lift_high",
  "density",
  "strongest_on",
  "top_tokens",
];

const cell = (value: number | null) => (value === null ? "" : String(value));

export function passageCsv({ hits, tokens }: Pick<PassageResult, "hits" | "tokens">): string {
  const rows = hits.map((hit) => [
    String(hit.expert),
    hit.label ?? "",
    hit.automatic?.label ?? "",
    ...[hit.mass, hit.share, hit.lift, hit.lift_low, hit.lift_high, hit.density].map(cell),
    tokens[hit.peak]?.text ?? "",
    hit.top_tokens.map((token) => token.text).join(" "),
  ]);
  return toCsv({ columns: COLUMNS, rows });
}

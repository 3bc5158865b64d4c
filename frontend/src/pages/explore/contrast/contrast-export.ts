/** Export of a contrast: the listed experts of both directions. */

import type { ContrastHit, ContrastResult } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { toCsv } from "@/components/plots/figure/figure-data";

const NUMBERS = [
  "active_a",
  "active_b",
  "units_a",
  "units_b",
  "density_a",
  "density_b",
  "activation_ratio",
  "p_value",
  "q_value",
] as const;
const COLUMNS = ["expert", "label", "automatic_label", "ratio", "ratio_low", "ratio_high", ...NUMBERS];

function row({ contrast, label, automatic }: ContrastHit): string[] {
  const { ratio } = contrast;
  return [
    String(contrast.expert),
    label ?? "",
    shownAutomatic(automatic)?.label ?? "",
    ...[ratio.value, ratio.low, ratio.high].map(String),
    ...NUMBERS.map((name) => (contrast[name] === null ? "" : String(contrast[name]))),
  ];
}

export function contrastCsv(result: Pick<ContrastResult, "more_in_a" | "more_in_b">): string {
  return toCsv({ columns: COLUMNS, rows: [...result.more_in_a, ...result.more_in_b].map(row) });
}

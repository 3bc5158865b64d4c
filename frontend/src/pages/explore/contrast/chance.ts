/** The control of a contrast: what is found if the documents are assigned at random. */

import type { ContrastResult } from "@/api/types";
import { formatCount, formatFixed, formatPercent } from "@/lib/text/format";

/** How many experts differ if the documents are assigned at random, and how often the intervals are right. */
export function chanceText({ chance, tested }: Pick<ContrastResult, "chance" | "tested">): string {
  if (tested === 0) return "nothing to test";
  const found =
    chance.most_found === 0
      ? "no expert found"
      : `${formatFixed(chance.mean_found, 1)} experts found on average, ${formatCount(chance.most_found)} at most`;
  return `${found}; ${formatPercent(chance.covered, 1)} % of the 95 % intervals contain the true ratio of\u00a01`;
}

/** Share of the found experts that may be found by chance. */
const FALSE_DISCOVERY_RATE = 0.05;

/** Whether chance may explain more of the found experts than the false discovery rate allows. */
export const controlFails = ({ chance, found_a, found_b }: Pick<ContrastResult, "chance" | "found_a" | "found_b">) =>
  chance.mean_found > FALSE_DISCOVERY_RATE * (found_a + found_b);

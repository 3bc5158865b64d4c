/** Example prompts, and the order in which their graphs are checked. */

import type { Verdict } from "./verdict";

/** Selected for passing the check with the demo's layers. Whether they do with the chosen layers is measured each time. */
export const EXAMPLES: readonly string[] = [
  "She is taller than her brother, but he is",
  "I have never been so happy in my",
  "He woke up in the middle of the",
  "Ladies and",
  "We should all look after our",
];

/** Checking stops at so many usable graphs. */
const WANTED = 3;

export interface Example {
  readonly prompt: string;
  /** Undefined until it is checked; null if nothing could be measured. */
  readonly found: Verdict | null | undefined;
}

export const isUsable = ({ found }: Example) => found != null && found.level !== "bad";

/** Index of the example to check next; null if enough are usable or all are checked. */
export function nextToCheck(examples: readonly Example[]): number | null {
  if (examples.filter(isUsable).length >= WANTED) return null;
  const next = examples.findIndex(({ found }) => found === undefined);
  return next === -1 ? null : next;
}

/** What the checks found so far, e.g. `2 of 4 checked graphs did not fail, 1 with reservations.` */
export function examplesStatus(examples: readonly Example[]): string {
  const next = nextToCheck(examples);
  if (next !== null)
    return `Checking example ${next + 1}: its graph is traced, and its experts are ablated one at a time…`;
  const checked = examples.filter(({ found }) => found !== undefined);
  const weak = checked.filter(({ found }) => found?.level === "weak").length;
  const pass = checked.filter(isUsable).length;
  const evidence = weak === 0 ? "" : `, ${weak === pass ? "all" : weak} with reservations`;
  return `${pass} of ${checked.length} checked graphs did not fail with the chosen layers${evidence}. The examples were selected with the demo’s layers, so they do not show how often a graph passes.`;
}

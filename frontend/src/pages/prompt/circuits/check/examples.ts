/** Example prompts, and the order in which their graphs are checked. */

import type { Verdict } from "./verdict";

/** Selected for passing the check with the demo's layers. Whether they do with the chosen layers is measured each time. */
export const EXAMPLES: readonly string[] = [
  "Alexei smiled, his eyes shining with",
  "She picked up her pen and began to",
  "Roses are red, violets are",
  "Water freezes at 0 degrees",
  'She said, "I will be there soon.',
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

const LEVELS = ["good", "weak", "bad"] as const;
const rank = ({ found }: Example) => (found == null ? LEVELS.length : LEVELS.indexOf(found.level) - found.reliability);

/** The checked examples, the most reliable graph first; while checking, the next ones too, in their order. */
export function listedExamples(examples: readonly Example[]): readonly Example[] {
  const next = nextToCheck(examples);
  if (next !== null) return examples.slice(0, Math.max(WANTED, next + 1));
  return examples.filter(({ found }) => found !== undefined).toSorted((a, b) => rank(a) - rank(b));
}

/** What the list shows, e.g. `3 of 4 checked examples have a usable graph.` */
export function examplesStatus(examples: readonly Example[]): string {
  const next = nextToCheck(examples);
  if (next !== null)
    return `Checking example ${next + 1}: its graph is traced, and its experts are ablated one at a time…`;
  const checked = examples.filter(({ found }) => found !== undefined);
  const usable = `${checked.filter(isUsable).length} of ${checked.length} examples have a usable graph with the chosen layers.`;
  return `${usable} They were selected for this, so they do not show how often a graph passes.`;
}

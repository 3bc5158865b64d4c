/** Which runs make a whole language model together with the one that is looked at. */

import type { RunSummary } from "@/api/types";

type Named = Pick<RunSummary, "name" | "method">;
type Layer = Named & Pick<RunSummary, "layer">;

function commonEnd(one: string, other: string): number {
  let length = 0;
  while (length < Math.min(one.length, other.length) && one.at(-1 - length) === other.at(-1 - length)) length += 1;
  return length;
}

/** A run for each other layer: of several, one of the same method, and then that whose name ends most alike. */
export function oneOfEachLayer(run: Named, layers: readonly Layer[]): readonly string[] {
  const likeness = (layer: Layer) =>
    (layer.method === run.method ? 1000 : 0) + Math.min(999, commonEnd(layer.name, run.name));
  const best = new Map<number, Layer>();
  for (const layer of layers) {
    const held = best.get(layer.layer);
    if (held === undefined || likeness(layer) > likeness(held)) best.set(layer.layer, layer);
  }
  return [...best.values()].sort((a, b) => a.layer - b.layer).map((layer) => layer.name);
}

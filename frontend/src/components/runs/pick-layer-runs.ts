import type { RunSummary } from "@/api/types";

type RunName = Pick<RunSummary, "name" | "method">;
type Layer = RunName & Pick<RunSummary, "layer">;

/** Whether expert n of both runs was initialised at the same example token, so that it may mean the same in both. */
export const haveSameStart = (one: RunSummary, other: RunSummary): boolean =>
  (["language_model_name", "method", "seed", "num_experts"] as const).every((key) => one[key] === other[key]);

function commonSuffixLength(one: string, other: string): number {
  let length = 0;
  while (length < Math.min(one.length, other.length) && one.at(-1 - length) === other.at(-1 - length)) length += 1;
  return length;
}

/** One run per other layer: preferably of the same method, then the one with the most similar name ending. */
export function pickLayerRuns(run: RunName, layers: readonly Layer[]): readonly string[] {
  const similarity = (layer: Layer) =>
    (layer.method === run.method ? 1000 : 0) + Math.min(999, commonSuffixLength(layer.name, run.name));
  const best = new Map<number, Layer>();
  for (const layer of layers) {
    const current = best.get(layer.layer);
    if (current === undefined || similarity(layer) > similarity(current)) best.set(layer.layer, layer);
  }
  return [...best.values()].sort((a, b) => a.layer - b.layer).map((layer) => layer.name);
}

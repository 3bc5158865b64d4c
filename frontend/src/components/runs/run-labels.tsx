/** Labels of runs: methods, layers and K. */

import { ListBoxItem } from "react-aria-components";

import type { RunSummary } from "@/api/types";

const METHODS: Readonly<Record<string, string>> = {
  mxd: "MxD",
  transcoder: "Transcoder",
  "skip-transcoder": "Skip transcoder",
  autoencoder: "Autoencoder",
  "relu-mxd": "ReLU-MxD",
  "batch-topk-mxd": "BatchTopK-MxD",
  "low-rank-mxd": "Low-rank MxD",
  "tensor-ring-mxd": "Tensor-ring MxD",
  "hidden-mxd": "Hidden-side MxD",
  molt: "MOLT",
  "jumprelu-transcoder": "JumpReLU transcoder",
  "jumprelu-skip-transcoder": "JumpReLU skip transcoder",
};

/** Name on screen. A method that another package registered has its own name. */
export const methodName = (method: string): string => METHODS[method] ?? method;

export const runSummaryLine = (run: RunSummary) => `${methodName(run.method)}, layer ${run.layer}, K ${run.k}`;

type LayerOfRun = Pick<RunSummary, "name" | "layer" | "method">;

/** `10`; with the method if other runs have the same layer, and the name if they have the same method, too. */
export function layerLabel(run: LayerOfRun, all: readonly LayerOfRun[]): string {
  const sameLayer = all.filter((other) => other.layer === run.layer);
  if (sameLayer.length === 1) return String(run.layer);
  const isOnlyMethod = sameLayer.filter((other) => other.method === run.method).length === 1;
  return isOnlyMethod ? `${String(run.layer)} ${methodName(run.method)}` : run.name;
}

/** `16`, `2 to 16` if trained for several K, or `by threshold`. */
export function activeK(run: Pick<RunSummary, "k" | "min_k" | "has_top_k">): string {
  const { k, min_k: smallest, has_top_k: hasTopK } = run;
  if (!hasTopK) return "by threshold";
  return smallest === null || smallest === k ? String(k) : `${smallest} to ${k}`;
}

/** False for imported runs whose format does not record the number of training tokens. */
export const hasTokenCount = (run: Pick<RunSummary, "target_tokens">) => run.target_tokens > 0;

type OfMethod = Pick<RunSummary, "method">;

/** Whether the method has a hidden activation vector like an MLP's; transcoders and autoencoders do not. */
export const hasHiddenLayer = (run: OfMethod) => !/transcoder|autoencoder/.test(run.method);

/** What a run's units are called: features of a transcoder, experts of any other layer. */
export const unitName = (run: OfMethod) => (hasHiddenLayer(run) ? "experts" : "features");

/** A text about experts, about features instead if the run has these. */
export const inUnits = (text: string, run: OfMethod) =>
  hasHiddenLayer(run)
    ? text
    : text
        .replaceAll(/\ban expert/g, "a feature")
        .replaceAll(/\bexpert/g, "feature")
        .replaceAll(/\bExpert/g, "Feature");

/** Last path component of a Hugging Face Hub repo or folder. */
export const shortSource = (source: string) => source.replace(/\/+$/, "").split("/").at(-1) ?? source;

/** Format of an imported run and the last part of its source. */
export const shortOrigin = (origin: string) => `${origin.split(":")[0] ?? ""}: ${shortSource(origin)}`;

/** The share that decides how far losses compare: the strict routing share where it was measured. */
export function decisiveShare(run: Pick<RunSummary, "routing_share" | "strict_routing_share">): number | null {
  return run.strict_routing_share ?? run.routing_share;
}

/** By layer and name. */
export const byLayer = (a: RunSummary, b: RunSummary) => a.layer - b.layer || a.name.localeCompare(b.name, "en");

export const isSameMlp = (a: RunSummary, b: RunSummary) => a.language_model === b.language_model && a.layer === b.layer;

/** The runs to compare one with: those of its MLP first. */
export const othersOf = (run: RunSummary, runs: readonly RunSummary[]) =>
  runs
    .filter(({ name }) => name !== run.name)
    .toSorted((a, b) => Number(isSameMlp(b, run)) - Number(isSameMlp(a, run)) || byLayer(a, b));

export function RunOption({ run }: { readonly run: RunSummary }) {
  return (
    <ListBoxItem id={run.name} textValue={run.name} className="run-option">
      <b className="mono">{run.name}</b>
      <span className="dim">
        {runSummaryLine(run)}
        {run.indexed_tokens === null && ", not indexed"}
      </span>
    </ListBoxItem>
  );
}

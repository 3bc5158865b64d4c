/** Words for what a run is and how it stands. */

import type { RunStatus, RunSummary } from "@/api/types";

const METHODS: Readonly<Record<RunSummary["method"], string>> = {
  mxd: "MxD",
  transcoder: "Transcoder",
  "skip-transcoder": "Skip transcoder",
  autoencoder: "Autoencoder",
  "relu-mxd": "ReLU-MxD",
  "batch-topk-mxd": "BatchTopK-MxD",
  "jumprelu-mxd": "JumpReLU-MxD",
  "low-rank-mxd": "Low-rank MxD",
  "tensor-ring-mxd": "Tensor-ring MxD",
  "cross-layer-mxd": "Cross-layer MxD",
  molt: "MOLT",
  peer: "PEER",
  "jumprelu-transcoder": "JumpReLU transcoder",
  "jumprelu-skip-transcoder": "JumpReLU skip transcoder",
};

export function methodName(method: RunSummary["method"]): string {
  return METHODS[method];
}

/** `3`, or `2 to 4` of a run that reads layer 2 and writes all three. */
export function writtenLayers({ layer, last_layer: last }: Pick<RunSummary, "layer" | "last_layer">): string {
  return layer === last ? String(layer) : `${layer} to ${last}`;
}

/** `layer 3`, or `layers 2 to 4`. */
export function layersInWords(run: Pick<RunSummary, "layer" | "last_layer">): string {
  return `${run.layer === run.last_layer ? "layer" : "layers"} ${writtenLayers(run)}`;
}

/** `16`, `2 to 16` where it was fitted to be used with fewer experts too, or that a threshold lets through how many. */
export function activeK(run: Pick<RunSummary, "k" | "smallest_k" | "has_top_k">): string {
  const { k, smallest_k: smallest, has_top_k: hasTopK } = run;
  if (!hasTopK) return "by threshold";
  return smallest === null || smallest === k ? String(k) : `${smallest} to ${k}`;
}

const GATES: Readonly<Record<string, string>> = {
  flat: "Flat",
  "product-key": "Product keys",
  "two-level": "Two levels",
  cells: "Cells",
  projected: "Projected",
};

/** How a run finds its experts: the kind of gate, and of groups how many are looked into. */
export function gateName(gate: string): string {
  const [kind = "", ...rest] = gate.split(", ");
  return [GATES[kind] ?? kind, ...rest].join(", ");
}

const STATUSES: Readonly<Record<RunStatus, string>> = {
  training: "Training",
  stopped: "Stopped",
  finished: "Finished",
  failed: "Failed",
};

export function statusName(status: RunStatus): string {
  return STATUSES[status];
}

/** Whether a run says how many tokens it was fitted on; formats of other programs may not. */
export function saysTokens(run: Pick<RunSummary, "tokens_wanted">): boolean {
  return run.tokens_wanted > 0;
}

/** Whether a method has a hidden vector with an activation, as an MLP has: transcoders and autoencoders have none. */
export function hasHidden(run: Pick<RunSummary, "method">): boolean {
  return !/transcoder|autoencoder/.test(run.method);
}

/** The format of an imported run and the last part of where it came from. */
export function shortOrigin(origin: string): string {
  return `${origin.split(":")[0] ?? ""}: ${shortSource(origin)}`;
}

/** The last part of a hub name or folder: what a person calls the language model. */
export function shortSource(source: string): string {
  return source.replace(/\/+$/, "").split("/").at(-1) ?? source;
}

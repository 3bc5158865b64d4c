/** Order of the runs: grouped by the MLP that they replace, or sorted by one column. */

import type { RunSummary } from "@/api/types";
import { decisiveShare } from "@/components/runs/run-labels";
import { choiceParam } from "@/hooks/use-url-state";

export const SORTS = [
  "layer",
  "name",
  "num_experts",
  "k",
  "parameters",
  "trained_tokens",
  "training_mse",
  "held_out_mse",
  "loss_recovered",
  "routing_share",
  "dead",
  "updated",
] as const;
export type Sort = (typeof SORTS)[number];

export const RUNS_PARAMS = {
  /** By layer, the runs are grouped. */
  sort: choiceParam(SORTS, "layer"),
  order: choiceParam(["asc", "desc"], "asc"),
};

/** Share of a run's experts that are active on no indexed token; null if it is not indexed. */
export const deadShare = ({ num_experts: count, active_experts: active }: RunSummary) =>
  active === null ? null : 1 - active / count;

const KEYS: Readonly<Record<Sort, (run: RunSummary) => number | string | null>> = {
  layer: ({ layer }) => layer,
  name: ({ name }) => name,
  num_experts: (run) => run.num_experts,
  k: ({ k }) => k,
  parameters: ({ parameters }) => parameters,
  trained_tokens: (run) => run.trained_tokens,
  training_mse: (run) => run.last_metric?.normalized_mse ?? null,
  held_out_mse: (run) => run.held_out?.normalized_mse ?? null,
  loss_recovered: (run) => run.held_out?.loss_recovered.value ?? null,
  routing_share: decisiveShare,
  dead: deadShare,
  updated: (run) => run.updated_at,
};

function compareKeys(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");
}

/** Runs without a value come last in both orders. */
export function sortedRuns(runs: readonly RunSummary[], sort: Sort, order: "asc" | "desc"): readonly RunSummary[] {
  const key = KEYS[sort];
  const sign = order === "asc" ? 1 : -1;
  return runs.toSorted((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sign * compareKeys(a, b) || one.name.localeCompare(other.name, "en");
  });
}

/** Runs of one MLP. Only their losses and errors are comparable. */
export interface RunGroup {
  readonly model: string;
  readonly layer: number;
  readonly runs: readonly RunSummary[];
}

const isTraining = ({ runs }: RunGroup) => runs.some(({ status }) => status === "training");

/** One group per MLP; those with a run in training come first. */
export function groupedRuns(runs: readonly RunSummary[], order: "asc" | "desc" = "asc"): readonly RunGroup[] {
  const groups = new Map<string, RunGroup>();
  for (const run of sortedRuns(runs, "layer", order)) {
    const mlp = `${run.language_model} ${run.layer}`;
    const before = groups.get(mlp)?.runs ?? [];
    groups.set(mlp, { model: run.language_model_name, layer: run.layer, runs: [...before, run] });
  }
  return [...groups.values()].toSorted(
    (a, b) => Number(isTraining(b)) - Number(isTraining(a)) || a.model.localeCompare(b.model, "en"),
  );
}

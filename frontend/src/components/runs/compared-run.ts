/** The run whose evaluation says most. */

import type { RunSummary } from "@/api/types";

/** The first MxD with a run of another method at its layer; null if there is none. */
export function comparedRun(runs: readonly RunSummary[]): RunSummary | null {
  const isRival = (run: RunSummary) => (other: RunSummary) =>
    other.language_model === run.language_model && other.layer === run.layer && other.method !== run.method;
  return runs.find((run) => run.method === "mxd" && runs.some(isRival(run))) ?? null;
}

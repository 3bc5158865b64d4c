/** The run whose evaluation says most. */

import type { RunSummary } from "@/api/types";

import { useCurrentRun } from "./current-run";
import { type PageLinks, pageLinks } from "./page-links";

/** The first MxD with a run of another method at its layer. */
function comparedRun(runs: readonly RunSummary[]): RunSummary | undefined {
  const isRival = (run: RunSummary) => (other: RunSummary) =>
    other.language_model === run.language_model && other.layer === run.layer && other.method !== run.method;
  return runs.find((run) => run.method === "mxd" && runs.some(isRival(run)));
}

/** Links to the pages of that run; without one, of the current run. */
export function useComparedLinks(): PageLinks {
  const { runs, name } = useCurrentRun();
  return pageLinks(comparedRun(runs)?.name ?? name);
}

import type { CircuitNode } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";

/** A function that returns the URL of a node's expert, or null if its run is not here. */
export function useExpertUrl(): (node: CircuitNode) => string | null {
  const { runs } = useCurrentRun();
  return ({ run, expert }) => {
    if (run === null || expert === null || !runs.some(({ name }) => name === run)) return null;
    return pageLinks(run).expert(expert);
  };
}

import type { RunStatus } from "@/api/types";
import { statusName } from "@/components/runs/run-labels";

/** Status of a run as a word and a mark, so that it does not rely on colour alone. */
export function StatusWord({ status }: { readonly status: RunStatus }) {
  return (
    <span className="status-word" data-status={status}>
      {statusName(status)}
    </span>
  );
}

import type { RunStatus } from "@/api/types";
import { statusName } from "@/components/run-words";

/** How a run stands: a word, and a mark that is not colour alone. */
export function StatusWord({ status }: { readonly status: RunStatus }) {
  return (
    <span className="status-word" data-status={status}>
      {statusName(status)}
    </span>
  );
}

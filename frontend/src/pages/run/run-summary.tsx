/** What the run replaces and what it was trained on, in a few sentences. */

import type { RunSummary } from "@/api/types";
import { activeK, hasTokenCount, methodName, shortOrigin, shortSource, unitName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { formatCompact, formatCount } from "@/lib/text/format";

/** `24 of 16,127 experts`, or those above a threshold. */
function experts(run: RunSummary): string {
  const all = `${formatCount(run.num_experts)} ${unitName(run)}`;
  return run.has_top_k ? `${activeK(run)} of ${all}` : `those above a threshold, of ${all},`;
}

export function RunSummaryText({ run }: { readonly run: RunSummary }) {
  return (
    <p className="run-summary">
      <Term id="method">{methodName(run.method)}</Term> that replaces the MLP of{" "}
      <Term id="layer">layer {run.layer}</Term> of <span className="mono">{run.language_model_name}</span>:{" "}
      {experts(run)} are active per token, with {formatCompact(run.parameters)} parameters.{" "}
      {run.origin !== null && (
        <>
          Imported from <span className="mono">{shortOrigin(run.origin)}</span>.
        </>
      )}
      {run.origin === null && hasTokenCount(run) && (
        <>
          Trained on {formatCompact(run.trained_tokens)} tokens of{" "}
          <span className="mono" title={run.text}>
            {shortSource(run.text)}
          </span>
          , seed {run.seed}.
        </>
      )}
    </p>
  );
}

/** The latest evaluation of the run on each text, or the command that creates one. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { evaluationsQuery } from "@/api/queries";
import type { EvaluationSummary } from "@/api/types";
import { Command } from "@/components/ui/copyable-command";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";

import { evaluationsOnOtherTexts } from "./evaluations/evaluations-by-text";

interface WithEvaluationProps {
  readonly run: string;
  /** Called with the newest evaluation, and the newest on each other text. */
  readonly children: (evaluation: EvaluationSummary, others: readonly EvaluationSummary[]) => ReactNode;
}

export const evaluateCommand = (run: string | null) =>
  `mxd evaluate ${run ?? "NAME"} --dataset HELD_OUT_TEXT --tokens 100k`;

export function WithEvaluation({ run, children }: WithEvaluationProps) {
  const { data, error, refetch } = useQuery(evaluationsQuery(run));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading evaluation" rows={10} />;
  const newest = data.evaluations[0];
  if (newest === undefined)
    return (
      <EmptyState title="Not evaluated yet">
        {run} has not been evaluated on held-out text. Run:
        <Command text={evaluateCommand(run)} />
      </EmptyState>
    );
  return <>{children(newest, evaluationsOnOtherTexts(data.evaluations))}</>;
}

const WARNING_LEVELS = { alarm: "Alarm", warning: "Warning", note: "Note" } as const;

export function EvaluationWarnings({ evaluation }: { readonly evaluation: EvaluationSummary }) {
  if (evaluation.warnings.length === 0) return null;
  return (
    <ul className="warnings" aria-label="Warnings">
      {evaluation.warnings.map((warning) => (
        <li key={warning.text} data-level={warning.level}>
          <strong>{WARNING_LEVELS[warning.level]}:</strong> {warning.text}
        </li>
      ))}
    </ul>
  );
}

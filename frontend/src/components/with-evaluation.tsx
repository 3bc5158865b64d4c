/** The newest evaluation of the page's run on each text, or the command that makes one. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { evaluationsQuery } from "@/api/queries";
import type { EvaluationSummary } from "@/api/types";

import { Command } from "./command";
import { onOtherTexts } from "./other-texts";
import { EmptyState, ErrorState, LoadingState } from "./states";

interface WithEvaluationProps {
  readonly run: string;
  /** The newest, and the newest on each other text. */
  readonly children: (evaluation: EvaluationSummary, others: readonly EvaluationSummary[]) => ReactNode;
}

export const evaluateCommand = (run: string | null) =>
  `mxd evaluate ${run ?? "NAME"} --text HELD_OUT_TEXT --tokens 100k`;

export function WithEvaluation({ run, children }: WithEvaluationProps) {
  const { data, error, refetch } = useQuery(evaluationsQuery(run));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the evaluation" rows={10} />;
  const newest = data.evaluations[0];
  if (newest === undefined)
    return (
      <EmptyState title="Not evaluated yet">
        {run} has not been measured on held-out text:
        <Command text={evaluateCommand(run)} />
      </EmptyState>
    );
  return <>{children(newest, onOtherTexts(data.evaluations))}</>;
}

export function Verdicts({ evaluation }: { readonly evaluation: EvaluationSummary }) {
  if (evaluation.verdicts.length === 0) return null;
  return (
    <ul className="verdicts" aria-label="What to know before trusting it">
      {evaluation.verdicts.map((verdict) => (
        <li key={verdict.text} data-level={verdict.level}>
          <strong>{verdict.level}</strong> {verdict.text}
        </li>
      ))}
    </ul>
  );
}

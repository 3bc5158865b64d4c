/** What can be continued, while there is no prompt. */

import { useQuery } from "@tanstack/react-query";

import { sessionsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { ExamplePrompts } from "@/components/prompt/example-prompts";
import { EmptyState } from "@/components/ui/states";
import { continuationPrompt } from "@/lib/text/prompts";
import { Gallery } from "@/pages/steer/steering/sharing/sessions";

interface EmptyPromptProps {
  readonly run: RunSummary;
  readonly isTyped: boolean;
  readonly onChoose: (prompt: string) => void;
}

export function EmptyPrompt({ run, isTyped, onChoose }: EmptyPromptProps) {
  // The sessions are above the examples, so no example is shown before them.
  const { isPending } = useQuery(sessionsQuery(run.name));
  return (
    <div className="steering-empty">
      <EmptyState title={isTyped ? "Press Generate to continue the prompt" : "Type a prompt to continue"}>
        It is continued twice with the same random numbers: as baseline, and with the edits on the left.
      </EmptyState>
      <Gallery run={run} most={6} />
      {run.indexed_tokens !== null && !isPending && (
        <ExamplePrompts run={run.name} toPrompt={continuationPrompt} onChoose={onChoose} />
      )}
    </div>
  );
}

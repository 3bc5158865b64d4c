/** What can be continued, while there is no prompt. */

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
  return (
    <div className="steering-empty">
      <EmptyState title={isTyped ? "Press Generate to continue the prompt" : "Type a prompt to continue"}>
        It is continued twice with the same random numbers: as baseline, and with the edits on the left.
      </EmptyState>
      <Gallery run={run} most={6}>
        {run.indexed_tokens !== null && (
          <ExamplePrompts run={run.name} toPrompt={continuationPrompt} onChoose={onChoose} />
        )}
      </Gallery>
    </div>
  );
}

/** The prompt with its actions. */

import { useQuery } from "@tanstack/react-query";

import { isEmptyPrompt, sessionsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { ExamplePrompts } from "@/components/prompt/example-prompts";
import { FromContext } from "@/components/prompt/from-context";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import type { PromptDraft } from "@/components/prompt/prompt-draft";
import { Button } from "@/components/ui/button";
import { EmptyState } from "@/components/ui/states";
import { useShortcut } from "@/hooks/use-shortcut";
import { continuationPrompt } from "@/lib/text/prompts";
import { Gallery } from "@/pages/steer/steering/sharing/sessions";
import { isRunning } from "@/pages/steer/steering/texts/generation";
import type { Generator } from "@/pages/steer/steering/texts/use-generation";

interface PromptRowProps {
  readonly run: RunSummary;
  readonly draft: PromptDraft;
  readonly generator: Generator;
  readonly onGenerate: () => void;
  readonly onChoose: (prompt: string) => void;
}

export function PromptRow({ run, draft, generator, onGenerate, onChoose }: PromptRowProps) {
  const isGenerating = isRunning(generator.generation);
  const isEmpty = isEmptyPrompt({ text: draft.text });
  useShortcut("release", generator.stop, isGenerating);
  return (
    <section className="prompt-row">
      <PromptBox
        label="Prompt"
        placeholder="Type a prompt to continue"
        value={draft.text}
        onChange={draft.setText}
        onSubmit={onGenerate}
      />
      <div className="prompt-actions">
        {run.indexed_tokens !== null && (
          <FromContext run={run.name} onChoose={(context) => onChoose(continuationPrompt(context))} />
        )}
        {isGenerating ? (
          <Button icon="stop" shortcut="release" onClick={generator.stop}>
            Stop
          </Button>
        ) : (
          <Button variant="primary" disabled={isEmpty} onClick={onGenerate}>
            Generate<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        )}
      </div>
    </section>
  );
}

export function EmptyPrompt({
  run,
  isTyped,
  onChoose,
}: {
  readonly run: RunSummary;
  readonly isTyped: boolean;
  readonly onChoose: (prompt: string) => void;
}) {
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

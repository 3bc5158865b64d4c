/** What is continued, typed or taken from a context, and the button that does it. */

import type { RunSummary } from "@/api/types";
import { isNoPrompt } from "@/api/queries";
import { Button } from "@/components/button";
import { ChatBox, type useTurnsDraft } from "@/components/prompt/chat-box";
import { FromContext } from "@/components/prompt/from-context";
import { Openings } from "@/components/prompt/openings";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import type { PromptDraft } from "@/components/prompt/prompt-draft";
import { SavedOpenings } from "@/components/prompt/saved-openings";
import { useShortcut } from "@/components/shortcuts";
import { EmptyState } from "@/components/states";
import { opening } from "@/lib/prompts";

import { isRunning } from "./generation";
import type { Generator } from "./use-generation";

interface PromptRowProps {
  readonly run: RunSummary;
  readonly draft: PromptDraft;
  readonly turns: ReturnType<typeof useTurnsDraft>;
  readonly generator: Generator;
  readonly onGenerate: () => void;
  readonly onChoose: (prompt: string) => void;
}

export function PromptRow({ run, draft, turns, generator, onGenerate, onChoose }: PromptRowProps) {
  const running = isRunning(generator.generation);
  const isChat = turns.turns.length > 0;
  const nothing = isNoPrompt({ text: isChat ? "" : draft.text, turns: turns.turns });
  useShortcut("release", generator.stop, running);
  return (
    <section className="prompt-row">
      {isChat ? (
        <ChatBox turns={turns.turns} onChange={turns.type} onSubmit={onGenerate} />
      ) : (
        <PromptBox
          label="Prompt"
          placeholder="How the text begins"
          value={draft.text}
          onChange={draft.type}
          onSubmit={onGenerate}
        />
      )}
      <div className="prompt-actions">
        {!isChat && run.indexed_tokens !== null && (
          <FromContext run={run.name} onChoose={(context) => onChoose(opening(context))} />
        )}
        {running ? (
          <Button icon="stop" shortcut="release" onClick={generator.stop}>
            Stop
          </Button>
        ) : (
          <Button variant="primary" disabled={nothing} onClick={onGenerate}>
            Generate<kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        )}
      </div>
    </section>
  );
}

export function Nothing({ run, onChoose }: { readonly run: RunSummary; readonly onChoose: (prompt: string) => void }) {
  return (
    <div className="steering-empty">
      <EmptyState title="Type how a text begins">
        It is continued twice with the same random numbers: as the language model would, and with the edits on the left.
      </EmptyState>
      <SavedOpenings run={run.name} />
      {run.indexed_tokens !== null && <Openings run={run.name} cut={opening} onChoose={onChoose} />}
    </div>
  );
}

/** A prompt with its actions. */

import "./prompt.css";

import type { ReactNode } from "react";

import type { Example, RunSummary } from "@/api/types";
import { Button } from "@/components/ui/button";
import { useShortcut } from "@/hooks/use-shortcut";

import { FromExample } from "./from-example";
import { PromptBox, SUBMIT_KEY } from "./prompt-box";
import type { PromptDraft } from "./prompt-draft";

interface PromptRowProps {
  readonly run: RunSummary;
  readonly draft: PromptDraft;
  readonly placeholder: string;
  /** Name of the button that submits. */
  readonly action: string;
  readonly onSubmit: () => void;
  readonly onExample: (example: Example) => void;
  /** Stops what was submitted, while it runs. */
  readonly onStop?: (() => void) | null;
  /** Before the buttons. */
  readonly children?: ReactNode;
}

export function PromptRow(props: PromptRowProps) {
  const { run, draft, placeholder, action, onSubmit, onExample, onStop = null, children } = props;
  useShortcut("release", () => onStop?.(), onStop !== null);
  return (
    <section className="prompt-row">
      <PromptBox
        label="Prompt"
        placeholder={placeholder}
        value={draft.text}
        onChange={draft.setText}
        onSubmit={onSubmit}
      />
      <div className="prompt-actions">
        {children}
        {run.indexed_tokens !== null && <FromExample run={run.name} onChoose={onExample} />}
        {onStop === null ? (
          <Button variant="primary" disabled={draft.text === ""} onClick={onSubmit}>
            {action}
            <kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        ) : (
          <Button icon="stop" shortcut="release" onClick={onStop}>
            Stop
          </Button>
        )}
      </div>
    </section>
  );
}

/** A prompt with its actions. */

import "./prompt.css";

import type { ReactNode } from "react";
import { useLocation } from "react-router";

import type { Example, RunSummary } from "@/api/types";
import { Button } from "@/components/ui/button";
import { useShortcut } from "@/hooks/use-shortcut";
import { unreadEdits } from "@/lib/edits/edits";

import { FromExample } from "./example-prompts";
import { PromptBox, type PromptDraft, SUBMIT_KEY } from "./prompt-box";

export interface PromptRowProps {
  readonly run: RunSummary;
  readonly draft: PromptDraft;
  readonly placeholder?: string;
  /** Whether there is something to submit; by default, once something is typed. */
  readonly isReady?: boolean;
  /** Name of the button that submits. */
  readonly action: string;
  /** Whether it was submitted, so that the next step is another one. */
  readonly isDone?: boolean;
  readonly onSubmit: () => void;
  readonly onExample: (example: Example) => void;
  /** Stops what was submitted, while it runs. */
  readonly onStop?: (() => void) | null;
  /** Before the buttons. */
  readonly children?: ReactNode;
  /** A second prompt, below the first one. */
  readonly second?: ReactNode;
}

/** The parts of a link's edits that cannot be read. */
function UnreadEdits() {
  const { search } = useLocation();
  const unread = unreadEdits(new URLSearchParams(search).get("edits") ?? "");
  if (unread.length === 0) return null;
  return (
    <p className="unread-edits bad" role="alert">
      The link’s edit {unread.map((entry) => `“${entry}”`).join(", ")} cannot be read and was left out. An edit is
      EXPERT:add:STRENGTH, with add, scale or set, or EXPERT:ablate.
    </p>
  );
}

export function PromptRow(props: PromptRowProps) {
  const { run, draft, placeholder = "Type or paste a text", action, onSubmit, onExample, onStop = null } = props;
  const variant = props.isDone ? "plain" : "primary";
  useShortcut("release", () => onStop?.(), onStop !== null);
  return (
    <section className="prompt-row">
      <PromptBox label="Prompt" placeholder={placeholder} draft={draft} onSubmit={onSubmit} />
      <div className="row prompt-actions">
        {props.children}
        {run.indexed_tokens !== null && <FromExample run={run.name} onChoose={onExample} />}
        {onStop === null ? (
          <Button variant={variant} disabled={!(props.isReady ?? draft.text !== "")} onClick={onSubmit}>
            {action}
            <kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        ) : (
          <Button icon="stop" shortcut="release" onClick={onStop}>
            Stop
          </Button>
        )}
      </div>
      {props.second}
      <UnreadEdits />
    </section>
  );
}

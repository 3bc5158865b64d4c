/** The prompt on top of every view, with a chip per layer below it. */

import "@/components/prompt/prompt.css";

import type { ReactNode } from "react";

import type { Context, RunSummary } from "@/api/types";
import { FromContext } from "@/components/prompt/from-context";
import { PromptBox, SUBMIT_KEY } from "@/components/prompt/prompt-box";
import type { PromptDraft } from "@/components/prompt/prompt-draft";
import { Button } from "@/components/ui/button";

import { Layers } from "./layers";

interface PromptBarProps {
  readonly run: RunSummary;
  readonly draft: PromptDraft;
  /** Name of the button that submits. */
  readonly action: string;
  readonly onSubmit: () => void;
  readonly onExample: (context: Context) => void;
  readonly layers: readonly string[] | null;
  readonly onLayers: (runs: readonly string[]) => void;
  /** Before the buttons. */
  readonly children?: ReactNode;
}

export function PromptBar(props: PromptBarProps) {
  const { run, draft, action, onSubmit, onExample, layers, onLayers, children } = props;
  return (
    <>
      <section className="prompt-row">
        <PromptBox
          label="Prompt"
          placeholder="Type or paste a text"
          value={draft.text}
          onChange={draft.setText}
          onSubmit={onSubmit}
        />
        <div className="prompt-actions">
          {children}
          {run.indexed_tokens !== null && <FromContext run={run.name} onChoose={onExample} />}
          <Button variant="primary" disabled={draft.text === ""} onClick={onSubmit}>
            {action}
            <kbd aria-hidden="true">{SUBMIT_KEY}</kbd>
          </Button>
        </div>
      </section>
      <Layers run={run} chosen={layers} onChoose={onLayers} />
    </>
  );
}

/** What the texts continue, above them: a prompt with its search by effect, or the chat that was opened before. */

import { useState } from "react";

import type { RunSummary } from "@/api/types";
import { PromptRow } from "@/components/prompt/prompt-row";
import { Button } from "@/components/ui/button";
import { continuationPrompt, lastMessage } from "@/lib/text/prompts";
import { toOneLine } from "@/lib/text/token-text";
import { FindPane } from "@/pages/steer/steering/find/find-pane";
import type { SteeringPageState } from "@/pages/steer/steering/index";
import { OpenedSession } from "@/pages/steer/steering/sharing/sessions";

interface PromptHeadProps {
  readonly run: RunSummary;
  readonly state: SteeringPageState;
  /** Name of the button that submits. */
  readonly action: string;
  readonly onSubmit: () => void;
  /** Stops what was submitted, while it runs. */
  readonly onStop: (() => void) | null;
}

/** The chat whose next reply is measured, in the place of the prompt. */
function ChatRow({ state, action, onSubmit, onStop, message }: PromptHeadProps & { readonly message: string }) {
  return (
    <section className="prompt-row">
      <p className="chat-prompt">
        The reply to <b>“{toOneLine(message, true)}”</b> in the chat, with its chat template.
      </p>
      <div className="prompt-actions">
        <Button onClick={() => state.choose(message)}>Use as plain text</Button>
        {onStop === null ? (
          <Button variant="primary" onClick={onSubmit}>
            {action}
          </Button>
        ) : (
          <Button icon="stop" onClick={onStop}>
            Stop
          </Button>
        )}
      </div>
    </section>
  );
}

export function PromptHead(props: PromptHeadProps) {
  const { run, state, action, onSubmit, onStop } = props;
  const { params, setParams, draft, choose } = state;
  const message = lastMessage(params.turns);
  const [isOpen, setOpen] = useState(state.edits.length === 0);
  const isFinding = isOpen || params.wanted + params.unwanted !== "";
  return (
    <>
      {message === "" ? (
        <>
          <PromptRow
            run={run}
            draft={draft}
            placeholder="Type a prompt to continue"
            action={action}
            onSubmit={onSubmit}
            onExample={(example) => choose(continuationPrompt(example))}
            onStop={onStop}
          >
            {!isFinding && <Button onClick={() => setOpen(true)}>I want it to say …</Button>}
          </PromptRow>
          {isFinding && (
            <FindPane run={run} params={params} setParams={setParams} prompt={draft.text} commit={draft.commit} />
          )}
        </>
      ) : (
        <ChatRow {...props} message={message} />
      )}
      <OpenedSession id={params.session} onClose={state.closeSession} />
    </>
  );
}

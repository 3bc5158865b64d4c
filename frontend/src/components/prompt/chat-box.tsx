/** A prompt as chat turns, combined by the tokenizer's chat template. */

import { type KeyboardEvent, useState } from "react";

import type { Turn } from "@/api/types";
import { Button } from "@/components/ui/button";

import { ROLES } from "./turns-param";

export const INITIAL_TURNS: readonly Turn[] = [{ role: "user", text: "" }];

interface ChatBoxProps {
  readonly turns: readonly Turn[];
  readonly onChange: (turns: readonly Turn[]) => void;
  readonly onSubmit: () => void;
  /** Generated answer to the last turn, with which the chat can continue. */
  readonly reply?: string | undefined;
}

/** Role of an added turn, by the role of the one before. */
const NEXT_ROLE = { system: "user", user: "assistant", assistant: "user" } as const;

function AddTurns({ turns, onChange, reply }: Omit<ChatBoxProps, "onSubmit">) {
  return (
    <div className="add-turns">
      {reply !== undefined && (
        <Button
          size="small"
          variant="ghost"
          icon="plus"
          onClick={() => onChange([...turns, { role: "assistant", text: reply }, ...INITIAL_TURNS])}
        >
          Continue with the steered reply
        </Button>
      )}
      <Button
        size="small"
        variant="ghost"
        icon="plus"
        onClick={() => onChange([...turns, { role: NEXT_ROLE[turns.at(-1)?.role ?? "system"], text: "" }])}
      >
        Add turn
      </Button>
    </div>
  );
}

export function ChatBox({ turns, onChange, onSubmit, reply }: ChatBoxProps) {
  const setTurn = (index: number, turn: Turn) => onChange(turns.with(index, turn));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    onSubmit();
  };
  return (
    <div className="chat-box" role="group" aria-label="Chat">
      {turns.map((turn, index) => (
        <div key={index} className="turn">
          <select
            aria-label={`Role of turn ${index + 1}`}
            value={turn.role}
            onChange={(event) => setTurn(index, { ...turn, role: event.target.value as Turn["role"] })}
          >
            {ROLES.map((role) => (
              <option key={role}>{role}</option>
            ))}
          </select>
          <div className="prompt-box" data-text={`${turn.text}\u200b`}>
            <textarea
              rows={1}
              aria-label={`Turn ${index + 1}`}
              spellCheck={false}
              value={turn.text}
              onChange={(event) => setTurn(index, { ...turn, text: event.target.value })}
              onKeyDown={onKeyDown}
            />
          </div>
          {turns.length > 1 && (
            <Button
              size="small"
              variant="ghost"
              icon="close"
              aria-label={`Remove turn ${index + 1}`}
              onClick={() => onChange(turns.filter((_, other) => other !== index))}
            />
          )}
        </div>
      ))}
      <AddTurns turns={turns} onChange={onChange} reply={reply} />
    </div>
  );
}

/** Chat turns while editing; a change of the URL replaces them. */
export function useTurnsDraft(turns: readonly Turn[], onCommit: (turns: readonly Turn[]) => void) {
  const urlTurns = JSON.stringify(turns);
  const [draft, setDraft] = useState({ written: urlTurns, turns });
  if (draft.written !== urlTurns) setDraft({ written: urlTurns, turns });
  const isEdited = JSON.stringify(draft.turns) !== urlTurns;
  const commit = () => {
    if (isEdited) onCommit(draft.turns);
  };
  const type = (next: readonly Turn[]) => setDraft({ written: urlTurns, turns: next });
  return { turns: draft.turns, isEdited, type, commit };
}

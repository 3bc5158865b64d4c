/** A prompt as chat turns, combined by the tokenizer's chat template. */

import { type KeyboardEvent, useState } from "react";

import type { Turn } from "@/api/types";
import { Button } from "@/components/ui/button";

import { type ChatTurn, ROLES } from "./turns-param";

export const INITIAL_TURNS: readonly Turn[] = [{ role: "user", text: "" }];

export interface Replies {
  readonly steered: string;
  readonly original: string;
}

interface ChatBoxProps {
  readonly turns: readonly ChatTurn[];
  readonly onChange: (turns: readonly ChatTurn[]) => void;
  readonly onSubmit: () => void;
  /** Generated answers to the last turn, with which both chats can continue. */
  readonly replies?: Replies | undefined;
}

/** Role of an added turn, by the role of the one before. */
const NEXT_ROLE = { system: "user", user: "assistant", assistant: "user" } as const;

function AddTurns({ turns, onChange, replies }: Omit<ChatBoxProps, "onSubmit">) {
  return (
    <div className="add-turns">
      {replies !== undefined && (
        <Button
          size="small"
          variant="ghost"
          icon="plus"
          onClick={() =>
            onChange([
              ...turns,
              { role: "assistant", text: replies.steered, original: replies.original },
              ...INITIAL_TURNS,
            ])
          }
        >
          Continue, each with its own reply
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

export function ChatBox({ turns, onChange, onSubmit, replies }: ChatBoxProps) {
  const setTurn = (index: number, turn: ChatTurn) => onChange(turns.with(index, turn));
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
          {turn.original !== undefined && (
            <p className="original-turn" aria-label={`Turn ${index + 1} of the original model`}>
              <span className="dim">original</span> {turn.original}
            </p>
          )}
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
      <AddTurns turns={turns} onChange={onChange} replies={replies} />
    </div>
  );
}

/** Chat turns while editing; a change of the URL replaces them. */
export function useTurnsDraft(turns: readonly ChatTurn[], onCommit: (turns: readonly ChatTurn[]) => void) {
  const urlTurns = JSON.stringify(turns);
  const [draft, setDraft] = useState({ written: urlTurns, turns });
  if (draft.written !== urlTurns) setDraft({ written: urlTurns, turns });
  const isEdited = JSON.stringify(draft.turns) !== urlTurns;
  const commit = () => {
    if (isEdited) onCommit(draft.turns);
  };
  const type = (next: readonly ChatTurn[]) => setDraft({ written: urlTurns, turns: next });
  return { turns: draft.turns, isEdited, type, commit };
}

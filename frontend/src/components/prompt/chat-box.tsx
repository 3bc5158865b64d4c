/** A prompt as chat turns; the tokenizer's own template makes them into one text. */

import { type KeyboardEvent, useState } from "react";

import type { Turn } from "@/api/types";

import { Button } from "../button";
import { ROLES } from "./turns-param";

export const FIRST_TURNS: readonly Turn[] = [{ role: "user", text: "" }];

interface ChatBoxProps {
  readonly turns: readonly Turn[];
  readonly onChange: (turns: readonly Turn[]) => void;
  readonly onSubmit: () => void;
}

/** Who speaks after whom, where nothing else is said. */
const NEXT = { system: "user", user: "assistant", assistant: "user" } as const;

export function ChatBox({ turns, onChange, onSubmit }: ChatBoxProps) {
  const change = (place: number, turn: Turn) => onChange(turns.with(place, turn));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    onSubmit();
  };
  return (
    <div className="chat-box" role="group" aria-label="Chat">
      {turns.map((turn, place) => (
        <div key={place} className="turn">
          <select
            aria-label={`Who says turn ${place + 1}`}
            value={turn.role}
            onChange={(event) => change(place, { ...turn, role: event.target.value as Turn["role"] })}
          >
            {ROLES.map((role) => (
              <option key={role}>{role}</option>
            ))}
          </select>
          <div className="prompt-box" data-text={`${turn.text}\u200b`}>
            <textarea
              rows={1}
              aria-label={`Turn ${place + 1}`}
              spellCheck={false}
              value={turn.text}
              onChange={(event) => change(place, { ...turn, text: event.target.value })}
              onKeyDown={onKeyDown}
            />
          </div>
          {turns.length > 1 && (
            <Button
              size="small"
              variant="ghost"
              icon="close"
              aria-label={`Take turn ${place + 1} away`}
              onClick={() => onChange(turns.filter((_, other) => other !== place))}
            />
          )}
        </div>
      ))}
      <Button
        size="small"
        variant="ghost"
        icon="plus"
        onClick={() => onChange([...turns, { role: NEXT[turns.at(-1)?.role ?? "system"], text: "" }])}
      >
        Turn
      </Button>
    </div>
  );
}

/** Turns as they are typed, until they are committed; another address replaces them. */
export function useTurnsDraft(turns: readonly Turn[], onCommit: (turns: readonly Turn[]) => void) {
  const written = JSON.stringify(turns);
  const [draft, setDraft] = useState({ written, turns });
  if (draft.written !== written) setDraft({ written, turns });
  const commit = () => {
    if (JSON.stringify(draft.turns) !== written) onCommit(draft.turns);
  };
  return { turns: draft.turns, type: (next: readonly Turn[]) => setDraft({ written, turns: next }), commit };
}

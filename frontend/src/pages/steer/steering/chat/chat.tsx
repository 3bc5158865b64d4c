/** Parts of a chat in two columns: strengths on top, a history per column, and one input below. */

import "./chat.css";

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { expertQuery } from "@/api/queries";
import type { Variant } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { PromptBox } from "@/components/prompt/prompt-box";
import { type ChatTurn, originalTurns, steeredTurns } from "@/components/prompt/turns-param";
import { Button } from "@/components/ui/button";
import { useDraggedValue } from "@/hooks/use-dragged-value";
import { useShortcut } from "@/hooks/use-shortcut";
import { describeEdit, type Edit, editKey, hasStrength, type StrengthEdit } from "@/lib/edits/edits";
import { StrengthSlider } from "@/pages/steer/steering/edits/edit-card";

interface StrengthProps {
  readonly run: string;
  readonly edit: StrengthEdit;
  readonly onChange: (edit: Edit) => void;
}

function Strength({ run, edit, onChange }: StrengthProps) {
  const { data } = useQuery(expertQuery(edit.run ?? run, edit.expert));
  const { shown, drag, commit } = useDraggedValue(edit.strength, (strength) => onChange({ ...edit, strength }));
  return (
    <div className="chat-strength">
      <span>
        <span className="mono dim">{editKey(edit)}</span>{" "}
        <ExpertLabel
          label={data?.row.label ?? null}
          automatic={data?.row.automatic}
          topTokens={data?.row.top_tokens.map(({ text }) => text) ?? []}
        />
      </span>
      <StrengthSlider edit={edit} value={shown} onDrag={drag} onChange={commit} />
      <output>{describeEdit({ mode: edit.mode, strength: shown })}</output>
    </div>
  );
}

interface StrengthsProps {
  readonly run: string;
  readonly edits: readonly Edit[];
  readonly onChange: (edit: Edit) => void;
}

export function Strengths({ run, edits, onChange }: StrengthsProps) {
  return (
    <div className="chat-strengths">
      {edits.filter(hasStrength).map((edit) => (
        <Strength key={editKey(edit)} run={run} edit={edit} onChange={onChange} />
      ))}
    </div>
  );
}

/** The turns of one column before the reply that is generated. */
export function History({ turns, variant }: { readonly turns: readonly ChatTurn[]; readonly variant: Variant }) {
  const own = variant === "baseline" ? originalTurns(turns) : steeredTurns(turns);
  return (
    <ol className="chat-history">
      {own.map(({ role, text }, index) => (
        <li key={index} data-role={role}>
          <span className="sr">{role}: </span>
          {text}
        </li>
      ))}
    </ol>
  );
}

interface ChatInputProps {
  readonly initial: string;
  readonly isGenerating: boolean;
  readonly hasTurns: boolean;
  readonly onSend: (text: string) => void;
  readonly onStop: () => void;
  readonly onNew: () => void;
}

export function ChatInput({ initial, isGenerating, hasTurns, onSend, onStop, onNew }: ChatInputProps) {
  const [text, setText] = useState(initial);
  /** Enter was pressed while both still answered. */
  const [isQueued, setQueued] = useState(false);
  useShortcut("release", onStop, isGenerating);
  const send = () => {
    if (isGenerating) setQueued(true);
    else if (text.trim() !== "") onSend(text.trim());
  };
  useEffect(() => {
    if (isQueued && !isGenerating && text.trim() !== "") onSend(text.trim());
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only the end of the answers sends it
  }, [isGenerating]);
  return (
    <section className="prompt-row chat-input">
      <PromptBox
        label="Message to both"
        placeholder="Message to both"
        value={text}
        onChange={setText}
        onSubmit={send}
        onEnter="submit"
      />
      <div className="prompt-actions">
        {hasTurns && (
          <Button variant="ghost" onClick={onNew}>
            New chat
          </Button>
        )}
        {isGenerating ? (
          <Button icon="stop" shortcut="release" onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button variant="primary" disabled={text.trim() === ""} onClick={send}>
            Send<kbd aria-hidden="true">↵</kbd>
          </Button>
        )}
      </div>
      <p className="dim" role="status">
        {isQueued && isGenerating && "The message is sent after both answers. Esc stops them."}
      </p>
    </section>
  );
}

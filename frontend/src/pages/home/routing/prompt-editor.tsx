/** Prompt field: Enter confirms, Escape cancels. */

import { type KeyboardEvent, useState } from "react";

import { Button } from "@/components/ui/button";

interface PromptEditorProps {
  readonly label: string;
  readonly action: string;
  readonly initial: string;
  readonly onDone: (text: string | null) => void;
}

export function PromptEditor({ label, action, initial, onDone }: PromptEditorProps) {
  const [text, setText] = useState(initial);
  const submit = () => onDone(text.trim() === "" ? null : text);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") onDone(initial);
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    submit();
  };
  return (
    <div className="prompt-editor">
      <textarea
        className="textarea mono"
        aria-label={label}
        // eslint-disable-next-line jsx-a11y/no-autofocus -- it is opened in order to type
        autoFocus
        rows={3}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <Button size="small" variant="primary" onClick={submit}>
        {action}
      </Button>
      <Button size="small" variant="ghost" onClick={() => onDone(initial)}>
        Cancel
      </Button>
    </div>
  );
}

/** In-place text editor. Enter (Ctrl+Enter for several lines) saves, Escape cancels, an empty text deletes. */

import "./text-editor.css";

import { type ChangeEvent, type KeyboardEvent, type SubmitEvent, useState } from "react";

import { useSetLabel } from "@/api/mutations";
import type { ExpertDetail } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { Button } from "@/components/ui/button";
import { Failure } from "@/components/ui/states";

interface TextEditorProps {
  readonly label: string;
  readonly initial: string;
  /** Whether there is a saved text, which a button removes. */
  readonly isSaved?: boolean;
  readonly maxLength: number;
  readonly lines: number;
  readonly isSaving: boolean;
  readonly error: unknown;
  readonly onSave: (text: string | null) => void;
  readonly onCancel: () => void;
}

export function TextEditor({
  label,
  initial,
  isSaved = false,
  maxLength,
  lines,
  isSaving,
  error,
  ...actions
}: TextEditorProps) {
  const { onSave, onCancel } = actions;
  const [text, setText] = useState(initial);
  const save = () => onSave(text.trim() === "" ? null : text.trim());
  const onKeyDown = (event: KeyboardEvent) => {
    const isSave = event.key === "Enter" && (lines === 1 || event.ctrlKey || event.metaKey);
    if (!isSave && event.key !== "Escape") return;
    event.preventDefault();
    if (isSave) save();
    else onCancel();
  };
  const fieldProps = {
    "aria-label": label,
    autoFocus: true,
    maxLength,
    value: text,
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => setText(event.target.value),
    onKeyDown,
  };
  return (
    <form
      className={lines === 1 ? "editor one-line" : "editor"}
      onSubmit={(event: SubmitEvent) => {
        event.preventDefault();
        save();
      }}
    >
      {lines === 1 ? (
        // Typing replaces the text, which may be an automatic label.
        <input type="text" className="field" onFocus={(event) => event.target.select()} {...fieldProps} />
      ) : (
        <textarea className="textarea" rows={lines} {...fieldProps} />
      )}
      <Button type="submit" variant="primary" disabled={isSaving}>
        Save
      </Button>
      <Button variant="ghost" onClick={onCancel}>
        Cancel
      </Button>
      {isSaved && (
        <Button variant="ghost" disabled={isSaving} onClick={() => onSave(null)}>
          Remove {label.toLowerCase()}
        </Button>
      )}
      <Failure error={error} />
    </form>
  );
}

interface LabelEditorProps {
  readonly run: string;
  readonly row: ExpertDetail["row"];
  readonly onClose: () => void;
}

/** Editor of an expert's label, which starts with the automatic one. */
export function LabelEditor({ run, row, onClose }: LabelEditorProps) {
  const mutation = useSetLabel(run, row.expert);
  return (
    <TextEditor
      label={`Label of ${row.expert}`}
      initial={row.label ?? shownAutomatic(row.automatic)?.label ?? ""}
      isSaved={row.label !== null}
      maxLength={200}
      lines={1}
      isSaving={mutation.isPending}
      error={mutation.error}
      onSave={(text) => mutation.mutate(text, { onSuccess: onClose })}
      onCancel={onClose}
    />
  );
}

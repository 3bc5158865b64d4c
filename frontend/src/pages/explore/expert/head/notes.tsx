/** The note on an expert, editable in place. */

import { useState } from "react";

import { useSetNote } from "@/api/mutations";
import { Button } from "@/components/ui/button";
import { useShortcut } from "@/hooks/use-shortcut";

import { TextEditor } from "./text-editor";

interface NotesProps {
  readonly run: string;
  readonly expert: number;
  readonly note: string | null;
}

export function Notes({ run, expert, note }: NotesProps) {
  const [editing, setEditing] = useState(false);
  const noteMutation = useSetNote(run, expert);
  useShortcut("note", () => setEditing(true));
  if (editing)
    return (
      <TextEditor
        label="Note"
        initial={note ?? ""}
        isSaved={note !== null}
        maxLength={10_000}
        lines={3}
        isSaving={noteMutation.isPending}
        error={noteMutation.error}
        onSave={(text) => noteMutation.mutate(text, { onSuccess: () => setEditing(false) })}
        onCancel={() => setEditing(false)}
      />
    );
  return (
    <>
      <Button size="small" variant="ghost" icon="note" shortcut="note" onClick={() => setEditing(true)}>
        {note === null ? "Add note" : "Edit note"}
      </Button>
      {note !== null && <p className="note-text">{note}</p>}
    </>
  );
}

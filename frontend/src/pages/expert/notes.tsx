/** The note on an expert, and editing it. */

import { useState } from "react";

import { useSetNote } from "@/api/mutations";
import { Button } from "@/components/button";
import { useShortcut } from "@/components/shortcuts";

import { TextEditor } from "./text-editor";

interface NotesProps {
  readonly run: string;
  readonly expert: number;
  readonly note: string | null;
}

export function Notes({ run, expert, note }: NotesProps) {
  const [editing, setEditing] = useState(false);
  const saving = useSetNote(run, expert);
  useShortcut("note", () => setEditing(true));
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Note</h2>
        <span className="grow" />
        {!editing && (
          <Button size="small" icon="note" shortcut="note" onClick={() => setEditing(true)}>
            {note === null ? "Add a note" : "Edit the note"}
          </Button>
        )}
      </div>
      {editing ? (
        <TextEditor
          label="Note"
          initial={note ?? ""}
          maxLength={10_000}
          lines={5}
          isSaving={saving.isPending}
          error={saving.error}
          onSave={(text) => saving.mutate(text, { onSuccess: () => setEditing(false) })}
          onCancel={() => setEditing(false)}
        />
      ) : (
        <p className={note === null ? "dim" : "note-text"}>
          {note ?? "What is it, and what is it not? Nobody has said yet."}
        </p>
      )}
    </section>
  );
}

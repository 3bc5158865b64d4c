/** Name, note and actions of a list. */

import { useState } from "react";
import { useNavigate } from "react-router";

import { useUpdateList, useDeleteList } from "@/api/lists";
import type { Column, ExpertList } from "@/api/types";
import { expertCells } from "@/components/lists/expert-cells";
import { toCsv } from "@/components/plots/figure/figure-data";
import { usePageLinks } from "@/components/runs/page-links";
import { useTray } from "@/components/tray/tray-context";
import { Button, LinkButton } from "@/components/ui/button";
import { useColumns } from "@/hooks/use-columns";
import { focusOnce } from "@/lib/browser/focus-once";
import { saveFile } from "@/lib/browser/save-file";
import { newEdit } from "@/lib/edits/edits";
import { formatCount } from "@/lib/text/format";
import { TextEditor } from "@/pages/explore/expert/head/text-editor";

interface ListHeadProps {
  readonly run: string;
  readonly data: ExpertList;
}

type Editing = "name" | "note" | null;

function listCsv({ entries }: ExpertList, columns: readonly Column[]): string {
  const rows = entries.map(({ row, note }) => ({ ...expertCells(row, columns), note: note ?? "" }));
  return toCsv({ columns: Object.keys(rows[0] ?? {}), rows: rows.map((row) => Object.values(row)) });
}

/** Only letters and digits, which every file system accepts. */
const fileName = (run: string, name: string) => `${run}-${name.replace(/[^\p{L}\p{N}]+/gu, "-")}`;

function NameAndNote({ run, data }: ListHeadProps) {
  const [editing, setEditing] = useState<Editing>(null);
  const update = useUpdateList(run, data.list.id);
  const close = () => setEditing(null);
  const editorProps = { isSaving: update.isPending, error: update.error, onCancel: close };
  if (editing === "name") {
    return (
      <TextEditor
        label="List name"
        initial={data.list.name}
        maxLength={120}
        lines={1}
        {...editorProps}
        onSave={(text) => (text === null ? close() : update.mutate({ name: text }, { onSuccess: close }))}
      />
    );
  }
  return (
    <>
      <div className="label-line">
        <h1>{data.list.name}</h1>
        <Button size="small" variant="ghost" onClick={() => setEditing("name")}>
          Rename
        </Button>
      </div>
      {editing === "note" ? (
        <TextEditor
          label="List note"
          initial={data.list.note ?? ""}
          maxLength={10_000}
          lines={3}
          {...editorProps}
          onSave={(text) => update.mutate({ note: text ?? "" }, { onSuccess: close })}
        />
      ) : (
        <p className="list-note">
          {data.list.note ?? <span className="dim">No description</span>}{" "}
          <Button size="small" variant="ghost" icon="edit" onClick={() => setEditing("note")}>
            {data.list.note === null ? "Add description" : "Edit"}
          </Button>
        </p>
      )}
    </>
  );
}

function DeleteList({ run, data }: ListHeadProps) {
  const [isConfirming, setConfirming] = useState(false);
  const navigate = useNavigate();
  const links = usePageLinks();
  const deletion = useDeleteList(run, data.list.id, () => void navigate(links.page("lists")));
  if (!isConfirming) {
    return (
      <Button variant="ghost" onClick={() => setConfirming(true)}>
        Delete
      </Button>
    );
  }
  return (
    <span className="confirm" role="alert">
      Delete this list permanently?
      <Button size="small" disabled={deletion.isPending} onClick={() => deletion.mutate()}>
        Delete
      </Button>
      <Button ref={focusOnce} size="small" variant="ghost" onClick={() => setConfirming(false)}>
        Cancel
      </Button>
    </span>
  );
}

export function ListHead({ run, data }: ListHeadProps) {
  const links = usePageLinks();
  const columns = useColumns();
  const tray = useTray();
  const experts = data.entries.map((entry) => entry.row.expert);
  const notInTray = experts.filter((expert) => !tray.has(expert));
  const name = fileName(run, data.list.name);
  const isEmpty = experts.length === 0;
  return (
    <header className="list-head">
      <div className="list-title">
        <NameAndNote run={run} data={data} />
        <p className="dim">
          {formatCount(data.list.experts)} {data.list.experts === 1 ? "expert" : "experts"} of {run}
        </p>
      </div>
      <div className="list-acts">
        <LinkButton icon="table" to={links.page("experts", { list: String(data.list.id) })}>
          Show in table
        </LinkButton>
        <Button
          icon="plus"
          disabled={notInTray.length === 0}
          onClick={() => tray.replaceAll([...tray.edits, ...notInTray.map((expert) => newEdit(expert))])}
        >
          Add all to tray
        </Button>
        <Button
          icon="download"
          disabled={isEmpty}
          onClick={() => saveFile(`${name}.json`, JSON.stringify({ run, ...data }, null, 2), "application/json")}
        >
          JSON
        </Button>
        <Button
          icon="download"
          disabled={isEmpty}
          onClick={() => saveFile(`${name}.csv`, listCsv(data, columns), "text/csv")}
        >
          CSV
        </Button>
        <DeleteList run={run} data={data} />
      </div>
    </header>
  );
}

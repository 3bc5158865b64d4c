/** Name and note of a list, and what can be done with all of it. */

import { useState } from "react";
import { useNavigate } from "react-router";

import { useChangeList, useDeleteList } from "@/api/lists";
import type { ExpertList } from "@/api/types";
import { Button, LinkButton } from "@/components/button";
import { toCsv } from "@/components/figure/figure-data";
import { usePageLinks } from "@/components/links";
import { useTray } from "@/components/tray/tray-context";
import { newEdit } from "@/lib/edits";
import { EXPERT_COLUMNS, expertCells } from "@/components/lists/expert-cells";
import { formatCount } from "@/lib/format";
import { saveFile } from "@/lib/save-file";

import { TextEditor } from "../expert/text-editor";

interface ListHeadProps {
  readonly run: string;
  readonly data: ExpertList;
}

type Editing = "name" | "note" | null;

export function listCsv({ entries }: ExpertList): string {
  const rows = entries.map((entry) => [...expertCells(entry.row), entry.note ?? ""]);
  return toCsv({ columns: [...EXPERT_COLUMNS, "note"], rows });
}

/** What is in the file name: letters and digits, so that every system takes it. */
const fileName = (run: string, name: string) => `${run}-${name.replace(/[^\p{L}\p{N}]+/gu, "-")}`;

function Words({ run, data }: ListHeadProps) {
  const [editing, setEditing] = useState<Editing>(null);
  const change = useChangeList(run, data.list.id);
  const close = () => setEditing(null);
  const common = { isSaving: change.isPending, error: change.error, onCancel: close };
  if (editing === "name") {
    return (
      <TextEditor
        label="Name of the list"
        initial={data.list.name}
        maxLength={120}
        lines={1}
        {...common}
        onSave={(text) => (text === null ? close() : change.mutate({ name: text }, { onSuccess: close }))}
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
          label="Note on the list"
          initial={data.list.note ?? ""}
          maxLength={10_000}
          lines={3}
          {...common}
          onSave={(text) => change.mutate({ note: text ?? "" }, { onSuccess: close })}
        />
      ) : (
        <p className="list-note">
          {data.list.note ?? <span className="dim">What is this list for?</span>}{" "}
          <Button size="small" variant="ghost" icon="edit" onClick={() => setEditing("note")}>
            {data.list.note === null ? "Say so" : "Edit"}
          </Button>
        </p>
      )}
    </>
  );
}

function DeleteList({ run, data }: ListHeadProps) {
  const [sure, setSure] = useState(false);
  const deleting = useDeleteList(run, data.list.id);
  const navigate = useNavigate();
  const links = usePageLinks();
  if (!sure) {
    return (
      <Button variant="ghost" onClick={() => setSure(true)}>
        Delete
      </Button>
    );
  }
  return (
    <span className="sure" role="alert">
      Delete this list for good?
      <Button
        size="small"
        disabled={deleting.isPending}
        onClick={() => deleting.mutate(undefined, { onSuccess: () => void navigate(links.page("lists")) })}
      >
        Delete it
      </Button>
      <Button size="small" variant="ghost" onClick={() => setSure(false)}>
        Keep it
      </Button>
    </span>
  );
}

export function ListHead({ run, data }: ListHeadProps) {
  const links = usePageLinks();
  const tray = useTray();
  const experts = data.entries.map((entry) => entry.row.expert);
  const fresh = experts.filter((expert) => !tray.has(expert));
  const name = fileName(run, data.list.name);
  const isEmpty = experts.length === 0;
  return (
    <header className="list-head">
      <div className="list-words">
        <Words run={run} data={data} />
        <p className="dim">
          {formatCount(data.list.experts)} {data.list.experts === 1 ? "expert" : "experts"} of {run}
        </p>
      </div>
      <div className="list-acts">
        <LinkButton icon="table" to={links.page("experts", { list: String(data.list.id) })}>
          In the table
        </LinkButton>
        <Button
          icon="plus"
          disabled={fresh.length === 0}
          onClick={() => tray.replaceAll([...tray.edits, ...fresh.map((expert) => newEdit(expert))])}
        >
          All to tray
        </Button>
        <Button
          icon="download"
          disabled={isEmpty}
          onClick={() => saveFile(`${name}.json`, JSON.stringify({ run, ...data }, null, 2), "application/json")}
        >
          JSON
        </Button>
        <Button icon="download" disabled={isEmpty} onClick={() => saveFile(`${name}.csv`, listCsv(data), "text/csv")}>
          CSV
        </Button>
        <DeleteList run={run} data={data} />
      </div>
    </header>
  );
}

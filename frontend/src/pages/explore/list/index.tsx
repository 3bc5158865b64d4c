/** A list of experts with order, notes and export. */

import "./list.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useParams } from "react-router";

import { messageOf } from "@/api/http";
import {
  useDeleteList,
  useReorderList,
  useRestoreEntry,
  useSetEntryNote,
  useSetMembership,
  useUpdateList,
} from "@/api/mutations";
import { listQuery } from "@/api/queries";
import type { ExpertList, ListEntry, RunSummary } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { recordsCsv } from "@/components/plots/figure";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { pageLinks, usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { useTray } from "@/components/tray/tray-context";
import { ExportMenu } from "@/components/ui/action-menu";
import { Button, GhostButton, LinkButton } from "@/components/ui/button";
import { EmptyState, ErrorState, Failure, LoadingState } from "@/components/ui/states";
import { useColumns } from "@/hooks/use-experts";
import { useIsNarrow } from "@/hooks/use-size";
import { newEdit } from "@/lib/edits/edits";
import { formatFixed, formatPlural } from "@/lib/text/format";
import { LabelEditor, TextEditor } from "@/pages/explore/expert/head";
import { tableRow } from "@/pages/explore/experts/table";
import { densityColumn, FoundTable } from "@/pages/explore/search/found-table";

/** A ref that takes the focus, for an element that replaces the one that had it. */
const focusOnce = (element: HTMLElement | null): void => element?.focus();

interface OfList {
  readonly run: string;
  readonly list: number;
}

function NoteField({ run, list, entry }: OfList & { readonly entry: ListEntry }) {
  const saved = entry.note ?? "";
  const [text, setText] = useState(saved);
  const noteMutation = useSetEntryNote(run, list);
  const save = () => {
    if (text.trim() !== saved) noteMutation.mutate({ expert: entry.row.expert, note: text.trim() });
  };
  return (
    <>
      <input
        className="field quiet entry-note"
        aria-label={`Note on expert ${entry.row.expert}`}
        placeholder="Add note"
        maxLength={10_000}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onBlur={save}
        onKeyDown={(event) => {
          if (event.key === "Enter") save();
          if (event.key === "Escape") setText(saved);
        }}
      />
      <Failure error={noteMutation.error} />
    </>
  );
}

/** Moves the focus to the same button of the next row, or of the previous one, before its own row is removed. */
function focusNeighbour(button: HTMLButtonElement): void {
  const removes = [...document.querySelectorAll<HTMLButtonElement>(".c-acts button:last-child")];
  const index = removes.indexOf(button);
  (removes[index + 1] ?? removes[index - 1])?.focus();
}

/** The label, linked to the expert's page and editable in place. */
function LabelCell({ run, row }: { readonly run: string; readonly row: ListEntry["row"] }) {
  const [editing, setEditing] = useState(false);
  const links = usePageLinks();
  if (editing) return <LabelEditor run={run} row={row} onClose={() => setEditing(false)} />;
  return (
    <div className="row l-label">
      <span className="mono dim found-id">{row.expert}</span>
      <Link to={links.expert(row.expert)}>
        <ExpertLabel label={row.label} automatic={row.automatic} expert={row.expert} />
      </Link>
      <GhostButton icon="edit" aria-label={`Label ${row.expert}`} onClick={() => setEditing(true)} />
      {row.tags.map((tag) => (
        <span key={tag} className="chip">
          {tag}
        </span>
      ))}
    </div>
  );
}

interface Removed {
  readonly entry: ListEntry;
  readonly index: number;
}

function useRemoval(run: string, list: number) {
  const [last, setLast] = useState<Removed | null>(null);
  const [restored, setRestored] = useState<number | null>(null);
  const membership = useSetMembership(run);
  const remove = (removed: Removed) =>
    membership.mutate(
      { list, experts: [removed.entry.row.expert], isMember: false },
      { onSuccess: () => setLast(removed) },
    );
  const onRestored = (expert: number) => {
    setLast(null);
    setRestored(expert);
  };
  return { last, restored, remove, error: membership.error, onRestored };
}

interface RemovedEntryProps extends Removed, OfList {
  /** The experts that are still in the list, in order. */
  readonly experts: readonly number[];
  readonly onRestored: (expert: number) => void;
}

/** The expert that was removed last from a list, and a button that adds it again. */
function RemovedEntry({ run, list, entry, index, experts, onRestored }: RemovedEntryProps) {
  const restoration = useRestoreEntry(run, list);
  const { expert, label } = entry.row;
  const order = experts.toSpliced(index, 0, expert);
  return (
    <p className="row wrap" role="status">
      Removed expert {expert}
      {label !== null && ` (${label})`}.
      <Button
        size="small"
        disabled={restoration.isPending}
        onClick={() =>
          restoration.mutate({ expert, note: entry.note ?? "", order }, { onSuccess: () => onRestored(expert) })
        }
      >
        Undo
      </Button>
      {restoration.error !== null && <span className="bad">{messageOf(restoration.error)}</span>}
    </p>
  );
}

interface ListHeadProps {
  readonly run: string;
  readonly data: ExpertList;
}

/** Only letters and digits, which every file system accepts. */
const fileName = (run: string, name: string) => `${run}-${name.replace(/[^\p{L}\p{N}]+/gu, "-")}`;

function NameAndNote({ run, data }: ListHeadProps) {
  const [editing, setEditing] = useState<"name" | "note" | null>(null);
  const update = useUpdateList(run, data.list.id);
  const close = () => setEditing(null);
  const editorProps = { saving: update, onCancel: close };
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
      <div className="row wrap label-line">
        <h1>{data.list.name}</h1>
        <GhostButton onClick={() => setEditing("name")}>Rename</GhostButton>
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
        <p className="row list-note">
          {data.list.note ?? <span className="dim">No description</span>}{" "}
          <GhostButton icon="edit" onClick={() => setEditing("note")}>
            {data.list.note === null ? "Add description" : "Edit"}
          </GhostButton>
        </p>
      )}
    </>
  );
}

function DeleteList({ run, data }: ListHeadProps) {
  const [isConfirming, setConfirming] = useState(false);
  const navigate = useNavigate();
  const links = usePageLinks();
  const deletion = useDeleteList(run, data.list.id, () => void navigate(links.page("experts")));
  if (!isConfirming) {
    return (
      <Button variant="ghost" onClick={() => setConfirming(true)}>
        Delete
      </Button>
    );
  }
  return (
    <span className="row wrap" role="alert">
      Delete this list permanently?
      <Button size="small" disabled={deletion.isPending} onClick={() => deletion.mutate()}>
        Delete
      </Button>
      <GhostButton ref={focusOnce} onClick={() => setConfirming(false)}>
        Cancel
      </GhostButton>
    </span>
  );
}

/** Name, note and actions of a list. */
function ListHead({ run, data }: ListHeadProps) {
  const links = usePageLinks();
  const columns = useColumns();
  const tray = useTray();
  const experts = data.entries.map((entry) => entry.row.expert);
  const notInTray = experts.filter((expert) => !tray.has(expert));
  return (
    <header className="list-head">
      <div className="list-title">
        <NameAndNote run={run} data={data} />
        <p className="dim">
          {formatPlural(data.list.experts, "expert")} of {run}
        </p>
      </div>
      <div className="row wrap">
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
        <ExportMenu
          name={fileName(run, data.list.name)}
          csv={() => recordsCsv(data.entries.map(({ row, note }) => ({ ...tableRow(row, columns, []), note })))}
          json={() => ({ run, ...data })}
          isDisabled={experts.length === 0}
        />
        <DeleteList run={run} data={data} />
      </div>
    </header>
  );
}

interface EntriesProps extends OfList {
  readonly entries: readonly ListEntry[];
  /** The expert that was just added again. */
  readonly restored: number | null;
  readonly remove: (removed: Removed) => void;
  /** Receives the experts in their new order. */
  readonly onMove: (experts: readonly number[]) => void;
}

function Entries({ run, list, entries, restored, remove, onMove }: EntriesProps) {
  const isNarrow = useIsNarrow();
  const experts = entries.map(({ row }) => row.expert);
  const note = (entry: ListEntry) => <NoteField key={entry.row.expert} run={run} list={list} entry={entry} />;
  const actions = (entry: ListEntry) => {
    const { expert } = entry.row;
    const index = experts.indexOf(expert);
    const move = (offset: -1 | 1) => () => onMove(experts.toSpliced(index, 1).toSpliced(index + offset, 0, expert));
    return (
      <>
        <GhostButton icon="arrowUp" aria-label={`Move ${expert} up`} disabled={index === 0} onClick={move(-1)} />
        <GhostButton
          icon="arrowDown"
          aria-label={`Move ${expert} down`}
          disabled={index === experts.length - 1}
          onClick={move(1)}
        />
        <GhostButton
          ref={expert === restored ? focusOnce : undefined}
          icon="close"
          aria-label={`Remove ${expert} from the list`}
          onClick={({ currentTarget }) => {
            focusNeighbour(currentTarget);
            remove({ entry, index });
          }}
        />
      </>
    );
  };
  return (
    <FoundTable
      label="Experts of the list"
      rows={entries}
      found={({ row }) => ({ ...row, topTokens: row.top_tokens })}
      labelled={({ row }) => <LabelCell run={run} row={row} />}
      columns={[
        densityColumn(({ row }: ListEntry) => row.density),
        {
          key: "max",
          name: <Term id="max_activation">Max act.</Term>,
          isNumber: true,
          from: "laptop",
          cell: ({ row }) => formatFixed(row.max_activation),
        },
      ]}
      trail={[
        { key: "note", name: "Note", from: "tablet", cell: note },
        { key: "acts", name: <span className="sr">Order</span>, cell: actions },
      ]}
      {...(isNarrow && { below: note })}
    />
  );
}

function ListView({ run, id }: { readonly run: RunSummary; readonly id: number }) {
  const { data, error, refetch } = useQuery(listQuery(run.name, id));
  const order = useReorderList(run.name, id);
  const { last, restored, remove, error: removalError, onRestored } = useRemoval(run.name, id);
  if (error !== null)
    return (
      <ErrorState error={error} onRetry={() => void refetch()}>
        <Link to={pageLinks(run.name).page("experts")}>Experts and lists of {run.name}</Link>
      </ErrorState>
    );
  if (data === undefined) return <LoadingState label="Loading list" rows={8} rowHeight={31} />;
  const failure = order.error ?? removalError;
  const experts = data.entries.map((entry) => entry.row.expert);
  return (
    <div className="stack lists-page">
      <title>{`${data.list.name} · MxD Explorer`}</title>
      <ListHead run={run.name} data={data} />
      {last !== null && <RemovedEntry run={run.name} list={id} {...last} experts={experts} onRestored={onRestored} />}
      {data.entries.length === 0 ? (
        <EmptyState title="This list is empty">
          Open an expert and choose “Add to list”, or lasso experts on the Experts page and add the selection.
        </EmptyState>
      ) : (
        <Entries run={run.name} list={id} entries={data.entries} onMove={order.mutate} {...{ restored, remove }} />
      )}
      {failure !== null && <ErrorState error={failure} />}
    </div>
  );
}

export default function ListPage() {
  const { list = "" } = useParams();
  const links = usePageLinks();
  const isNumber = /^\d{1,9}$/.test(list);
  const { name: run } = useCurrentRun();
  const { data } = useQuery({ ...listQuery(run ?? "", Number(list)), enabled: run !== null && isNumber });
  return (
    <>
      <title>{`List ${list} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Experts", to: links.page("experts") }, { label: data?.list.name ?? list }]} />
      <WithRun>
        {(run) =>
          isNumber ? (
            <ListView key={list} run={run} id={Number(list)} />
          ) : (
            <EmptyState title={`List ${list} not found`}>
              Lists have numbers. Choose one above the table of <Link to={links.page("experts")}>all experts</Link>.
            </EmptyState>
          )
        }
      </WithRun>
    </>
  );
}

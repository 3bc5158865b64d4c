/** One expert of a list: label, statistics, note and position. */

import { useState } from "react";
import { Link } from "react-router";

import { useSetEntryNote } from "@/api/lists";
import type { ListEntry } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { Failure } from "@/components/ui/states";
import { focusOnce } from "@/lib/browser/focus-once";
import { formatFixed, formatShare } from "@/lib/text/format";
import { LabelEditor } from "@/pages/explore/expert/head/text-editor";

interface EntryRowProps {
  readonly run: string;
  readonly list: number;
  readonly entry: ListEntry;
  readonly isFirst: boolean;
  readonly isLast: boolean;
  /** Whether it was just added again. */
  readonly isRestored: boolean;
  readonly onMove: (offset: -1 | 1) => void;
  readonly onRemove: () => void;
}

function NoteField({ run, list, entry }: Pick<EntryRowProps, "run" | "list" | "entry">) {
  const saved = entry.note ?? "";
  const [text, setText] = useState(saved);
  const noteMutation = useSetEntryNote(run, list);
  const save = () => {
    if (text.trim() !== saved) noteMutation.mutate({ expert: entry.row.expert, note: text.trim() });
  };
  return (
    <>
      <input
        className="entry-note"
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
  const row = button.closest("tr");
  const neighbour = row?.nextElementSibling ?? row?.previousElementSibling;
  neighbour?.querySelector<HTMLButtonElement>("td:last-child button:last-child")?.focus();
}

/** The label, linked to the expert's page and editable in place. */
function LabelCell({ run, row }: { readonly run: string; readonly row: ListEntry["row"] }) {
  const [editing, setEditing] = useState(false);
  const links = usePageLinks();
  if (editing) return <LabelEditor run={run} row={row} onClose={() => setEditing(false)} />;
  return (
    <>
      <Link to={links.expert(row.expert)}>
        <ExpertLabel label={row.label} automatic={row.automatic} expert={row.expert} />
      </Link>
      <Button
        size="small"
        variant="ghost"
        icon="edit"
        aria-label={`Label ${row.expert}`}
        onClick={() => setEditing(true)}
      />
      {row.tags.map((tag) => (
        <span key={tag} className="chip">
          {tag}
        </span>
      ))}
    </>
  );
}

export function EntryRow(props: EntryRowProps) {
  const { run, list, entry, isFirst, isLast, isRestored, onMove, onRemove } = props;
  const { row } = entry;
  return (
    <tr>
      <td className="c-plus">
        <PlusButton expert={row.expert} />
      </td>
      <td className="num mono">{row.expert}</td>
      <td className="l-label">
        <LabelCell run={run} row={row} />
      </td>
      <td className="num">{formatShare(row.density)}</td>
      <td className="num">{formatFixed(row.max_activation)}</td>
      <td className="l-tokens">
        {row.top_tokens.slice(0, 4).map((token) => (
          <TokenChip key={token.id} text={token.text} />
        ))}
      </td>
      <td className="l-entry-note">
        <NoteField run={run} list={list} entry={entry} />
      </td>
      <td className="l-acts">
        <Button
          size="small"
          variant="ghost"
          icon="arrowUp"
          aria-label={`Move ${row.expert} up`}
          disabled={isFirst}
          onClick={() => onMove(-1)}
        />
        <Button
          size="small"
          variant="ghost"
          icon="arrowDown"
          aria-label={`Move ${row.expert} down`}
          disabled={isLast}
          onClick={() => onMove(1)}
        />
        <Button
          ref={isRestored ? focusOnce : undefined}
          size="small"
          variant="ghost"
          icon="close"
          aria-label={`Remove ${row.expert} from the list`}
          onClick={({ currentTarget }) => {
            focusNeighbour(currentTarget);
            onRemove();
          }}
        />
      </td>
    </tr>
  );
}

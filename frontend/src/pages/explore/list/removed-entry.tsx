/** The expert that was removed last from a list, and a button that adds it again. */

import { useState } from "react";

import { messageOf } from "@/api/http/errors";
import { useRestoreEntry, useSetMembership } from "@/api/lists";
import type { ListEntry } from "@/api/types";
import { Button } from "@/components/ui/button";

interface Removed {
  readonly entry: ListEntry;
  readonly index: number;
}

export function useRemoval(run: string, list: number) {
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

interface RemovedEntryProps extends Removed {
  readonly run: string;
  readonly list: number;
  /** The experts that are still in the list, in order. */
  readonly experts: readonly number[];
  readonly onRestored: (expert: number) => void;
}

export function RemovedEntry({ run, list, entry, index, experts, onRestored }: RemovedEntryProps) {
  const restoration = useRestoreEntry(run, list);
  const { expert, label } = entry.row;
  const order = experts.toSpliced(index, 0, expert);
  return (
    <p className="removed-entry" role="status">
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

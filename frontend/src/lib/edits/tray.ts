/** The tray: edits that persist across pages, one list per run, kept for the browser tab. */

import { type Edit, editKey, formatEdits, parseEdits } from "./edits";

export interface TrayStorage {
  readonly getItem: (key: string) => string | null;
  readonly setItem: (key: string, value: string) => void;
  readonly removeItem: (key: string) => void;
}

/** Edits from a link, for a given run or, if null, for the first run the page shows. */
export interface SharedEdits {
  readonly run: string | null;
  readonly edits: readonly Edit[];
}

export interface TrayStore {
  /** Referentially stable until the edits change. `run` is null while it is not known yet. */
  readonly read: (run: string | null) => readonly Edit[];
  readonly write: (run: string, edits: readonly Edit[]) => void;
  readonly subscribe: (listener: () => void) => () => void;
}

const EMPTY: readonly Edit[] = [];

export function createTrayStore(storage: TrayStorage, shared: SharedEdits | null = null): TrayStore {
  const lists = new Map<string, readonly Edit[]>();
  const listeners = new Set<() => void>();
  const key = (run: string) => `mxd-tray:${run}`;
  const save = (run: string, edits: readonly Edit[]) => {
    lists.set(run, edits);
    if (edits.length === 0) storage.removeItem(key(run));
    else storage.setItem(key(run), formatEdits(edits));
  };
  let pending = shared !== null && shared.edits.length > 0 ? shared : null;
  const read = (run: string | null): readonly Edit[] => {
    if (run === null) return pending?.run === null ? pending.edits : EMPTY;
    const cached = lists.get(run);
    if (cached !== undefined) return cached;
    if (pending !== null && (pending.run ?? run) === run) {
      save(run, pending.edits);
      pending = null;
    } else {
      lists.set(run, parseEdits(storage.getItem(key(run)) ?? ""));
    }
    return lists.get(run) ?? EMPTY;
  };
  const write = (run: string, edits: readonly Edit[]) => {
    save(run, edits);
    for (const listener of listeners) listener();
  };
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return { read, write, subscribe };
}

export function withEdit(edits: readonly Edit[], edit: Edit): readonly Edit[] {
  const key = editKey(edit);
  const known = edits.some((other) => editKey(other) === key);
  return known ? edits.map((other) => (editKey(other) === key ? edit : other)) : [...edits, edit];
}

export function withoutExpert(edits: readonly Edit[], expert: number, run?: string): readonly Edit[] {
  return edits.filter((edit) => edit.expert !== expert || edit.run !== run);
}

/** The tray: edits that follow from page to page. Kept for this browser tab, one list a run. */

import { type Edit, formatEdits, parseEdits } from "./edits";

export interface TrayStorage {
  readonly getItem: (key: string) => string | null;
  readonly setItem: (key: string, value: string) => void;
  readonly removeItem: (key: string) => void;
}

export interface TrayStore {
  /** The same array until it changes. */
  readonly read: (run: string) => readonly Edit[];
  readonly write: (run: string, edits: readonly Edit[]) => void;
  readonly subscribe: (listener: () => void) => () => void;
}

const EMPTY: readonly Edit[] = [];

export function createTrayStore(storage: TrayStorage): TrayStore {
  const lists = new Map<string, readonly Edit[]>();
  const listeners = new Set<() => void>();
  const key = (run: string) => `mxd-tray:${run}`;
  const read = (run: string): readonly Edit[] => {
    const known = lists.get(run);
    if (known !== undefined) return known;
    const stored = storage.getItem(key(run));
    const edits = stored === null ? EMPTY : parseEdits(stored);
    lists.set(run, edits);
    return edits;
  };
  const write = (run: string, edits: readonly Edit[]) => {
    lists.set(run, edits);
    if (edits.length === 0) storage.removeItem(key(run));
    else storage.setItem(key(run), formatEdits(edits));
    for (const listener of listeners) listener();
  };
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return { read, write, subscribe };
}

export function withEdit(edits: readonly Edit[], edit: Edit): readonly Edit[] {
  const known = edits.some((other) => other.expert === edit.expert);
  return known ? edits.map((other) => (other.expert === edit.expert ? edit : other)) : [...edits, edit];
}

export function withoutExpert(edits: readonly Edit[], expert: number): readonly Edit[] {
  return edits.filter((edit) => edit.expert !== expert);
}

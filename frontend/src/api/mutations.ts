/** Mutations of sign-in, labels, notes, lists and sessions. Each invalidates the queries that show them. */

import { type QueryClient, type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, unwrap } from "./http";
import { listQuery, sessionsQuery } from "./queries";
import type { AnnotationChange, ListChange, SaveSessionRequest, SnapshotFiles, SnapshotRequest } from "./types";

/** What a page shows, as files. */
export function fetchSnapshot(run: string, body: SnapshotRequest): Promise<SnapshotFiles> {
  return unwrap(client.POST("/api/runs/{run}/snapshot", { params: { path: { run } }, body }));
}

const refresh = (queries: QueryClient, keys: readonly QueryKey[]): Promise<unknown> =>
  Promise.all(keys.map((queryKey) => queries.invalidateQueries({ queryKey })));

/** A change after which the queries whose keys begin with one of these are fetched again. */
function useChange<T, R>(change: (value: T) => Promise<R>, keys: readonly QueryKey[]) {
  const queries = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => refresh(queries, keys) });
}

/** Signing in or out refetches everything. */
function useReset() {
  const queries = useQueryClient();
  return { onSuccess: () => queries.resetQueries() };
}

export const useSignIn = () =>
  useMutation({
    mutationFn: (token: string) => unwrap(client.POST("/api/access", { body: { token } })),
    ...useReset(),
  });
export const useSignOut = () => useMutation({ mutationFn: () => unwrap(client.DELETE("/api/access")), ...useReset() });

/** Change the label, the note or the tags of an expert; null deletes the label or the note. */
const annotate = (run: string, expert: number, body: AnnotationChange): Promise<unknown> =>
  unwrap(client.PATCH("/api/runs/{run}/experts/{expert}", { params: { path: { run, expert } }, body }));

/** Labels also appear in tables, similar experts and routing, so every query of the run is invalidated. */
export const useSetLabel = (run: string, expert: number) =>
  useChange((label: string | null) => annotate(run, expert, { label }), [["run", run]]);

export const useSetNote = (run: string, expert: number) =>
  useChange((note: string | null) => annotate(run, expert, { note }), [["run", run, "expert", expert]]);

/** Save a steering session under a name; resolves to the session with its short URL. */
export const useSaveSession = (run: string) =>
  useChange(
    (body: SaveSessionRequest) => unwrap(client.POST("/api/runs/{run}/sessions", { params: { path: { run } }, body })),
    [sessionsQuery(run).queryKey],
  );

export const useDeleteSession = (run: string) =>
  useChange(
    (id: string) => unwrap(client.DELETE("/api/sessions/{id}", { params: { path: { id } } })),
    [sessionsQuery(run).queryKey],
  );

/** Kinds of queries that show lists or tags: lists, experts, and expert tables filtered by them. */
const SHOW_LISTS = ["lists", "list", "expert", "experts"];
const listKeys = (run: string) => SHOW_LISTS.map((kind) => ["run", run, kind]);
const useListChange = <T, R>(run: string, change: (value: T) => Promise<R>) => useChange(change, listKeys(run));

export interface NewList {
  readonly name: string;
  readonly experts: readonly number[];
}

export const useCreateList = (run: string) =>
  useListChange(run, ({ name, experts }: NewList) =>
    unwrap(client.POST("/api/runs/{run}/lists", { params: { path: { run } }, body: { name, experts: [...experts] } })),
  );

const LIST = "/api/runs/{run}/lists/{list_id}";

const changeList = (run: string, list: number, body: ListChange) =>
  unwrap(client.PATCH(LIST, { params: { path: { run, list_id: list } }, body }));

export const useUpdateList = (run: string, list: number) =>
  useListChange(run, (body: Pick<ListChange, "name" | "note">) => changeList(run, list, body));

/** `onDeleted` leaves the list's page before its queries are refreshed: the list itself is not fetched again. */
export function useDeleteList(run: string, list: number, onDeleted: () => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(client.DELETE(LIST, { params: { path: { run, list_id: list } } })),
    onSuccess: () => {
      onDeleted();
      const { queryKey } = listQuery(run, list);
      const isOther = (key: QueryKey) => key.some((part, i) => part !== queryKey[i]);
      return queries.invalidateQueries({
        predicate: (query) => SHOW_LISTS.includes(String(query.queryKey[2])) && isOther(query.queryKey),
      });
    },
  });
}

interface MembershipChange {
  readonly list: number;
  readonly experts: readonly number[];
  readonly isMember: boolean;
}

/** Add experts to a list or remove them from it. */
export const useSetMembership = (run: string) =>
  useListChange(run, ({ list, experts, isMember }: MembershipChange) =>
    changeList(run, list, isMember ? { add: [...experts] } : { remove: [...experts] }),
  );

export const useReorderList = (run: string, list: number) =>
  useListChange(run, (experts: readonly number[]) => changeList(run, list, { order: [...experts] }));

interface EntryNote {
  readonly expert: number;
  readonly note: string;
}

export function useSetEntryNote(run: string, list: number) {
  const queries = useQueryClient();
  const { queryKey } = listQuery(run, list);
  return useMutation({
    mutationFn: ({ expert, note }: EntryNote) => changeList(run, list, { entry_notes: { [expert]: note } }),
    // The entry has the note at once: removing the expert and Undo would otherwise lose it.
    onMutate: async ({ expert, note }) => {
      await queries.cancelQueries({ queryKey });
      queries.setQueryData(queryKey, (data) => {
        if (data === undefined) return data;
        const entries = data.entries.map((entry) => (entry.row.expert === expert ? { ...entry, note } : entry));
        return { ...data, entries };
      });
    },
    onSettled: () => refresh(queries, listKeys(run)),
  });
}

interface Restoration extends EntryNote {
  /** The list's experts in order, with this one. */
  readonly order: readonly number[];
}

/** Add a removed expert to its list again, with its note and at its position. */
export const useRestoreEntry = (run: string, list: number) =>
  useListChange(run, ({ expert, note, order }: Restoration) =>
    changeList(run, list, { add: [expert], order: [...order], entry_notes: { [expert]: note } }),
  );

export const useSetTag = (run: string, expert: number) =>
  useListChange(run, ({ tag, isTagged }: { readonly tag: string; readonly isTagged: boolean }) =>
    annotate(run, expert, isTagged ? { add_tags: [tag] } : { remove_tags: [tag] }),
  );

/** Queries and mutations of lists and tags. Each mutation invalidates the queries that show them. */

import { type QueryClient, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, get, unwrap } from "./http/client";
import { annotate } from "./mutations";
import type { ListChange } from "./types";

const LISTS = "/api/runs/{run}/lists";
const LIST = "/api/runs/{run}/lists/{list_id}";

export const listsQuery = (run: string) =>
  queryOptions({ queryKey: ["run", run, "lists"], queryFn: get(LISTS, { path: { run } }) });

export const listQuery = (run: string, list: number) =>
  queryOptions({ queryKey: ["run", run, "list", list], queryFn: get(LIST, { path: { run, list_id: list } }) });

/** Kinds of queries that show lists or tags. */
const SHOWS_LISTS = new Set(["lists", "list", "expert", "experts"]);

/** Invalidate everything that shows lists or tags: lists, experts, and expert tables filtered by them. */
function refresh(queries: QueryClient, run: string): Promise<unknown> {
  return Promise.all([...SHOWS_LISTS].map((kind) => queries.invalidateQueries({ queryKey: ["run", run, kind] })));
}

function useListMutation<T, R>(run: string, change: (value: T) => Promise<R>) {
  const queries = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => refresh(queries, run) });
}

export interface NewList {
  readonly name: string;
  readonly experts: readonly number[];
}

export function useCreateList(run: string) {
  return useListMutation(run, ({ name, experts }: NewList) =>
    unwrap(client.POST(LISTS, { params: { path: { run } }, body: { name, experts: [...experts] } })),
  );
}

function changeList(run: string, list: number, body: ListChange) {
  return unwrap(client.PATCH(LIST, { params: { path: { run, list_id: list } }, body }));
}

export function useUpdateList(run: string, list: number) {
  return useListMutation(run, (body: Pick<ListChange, "name" | "note">) => changeList(run, list, body));
}

/** `onDeleted` leaves the list's page before its queries are refreshed: the list itself is not fetched again. */
export function useDeleteList(run: string, list: number, onDeleted: () => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(client.DELETE(LIST, { params: { path: { run, list_id: list } } })),
    onSuccess: () => {
      onDeleted();
      const { queryKey } = listQuery(run, list);
      const isOther = (key: readonly unknown[]) => key.some((part, i) => part !== queryKey[i]);
      return queries.invalidateQueries({
        predicate: (query) => SHOWS_LISTS.has(String(query.queryKey[2])) && isOther(query.queryKey),
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
export function useSetMembership(run: string) {
  return useListMutation(run, ({ list, experts, isMember }: MembershipChange) =>
    changeList(run, list, isMember ? { add: [...experts] } : { remove: [...experts] }),
  );
}

export function useReorderList(run: string, list: number) {
  return useListMutation(run, (experts: readonly number[]) => changeList(run, list, { order: [...experts] }));
}

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
    onSettled: () => refresh(queries, run),
  });
}

interface Restoration extends EntryNote {
  /** The list's experts in order, with this one. */
  readonly order: readonly number[];
}

/** Add a removed expert to its list again, with its note and at its position. */
export function useRestoreEntry(run: string, list: number) {
  return useListMutation(run, ({ expert, note, order }: Restoration) =>
    changeList(run, list, { add: [expert], order: [...order], entry_notes: { [expert]: note } }),
  );
}

export function useSetTag(run: string, expert: number) {
  return useListMutation(run, ({ tag, isTagged }: { readonly tag: string; readonly isTagged: boolean }) =>
    annotate(run, expert, isTagged ? { add_tags: [tag] } : { remove_tags: [tag] }),
  );
}

/** Lists of experts and tags: what is asked for, and what changes them. Each change refreshes what shows it. */

import { type QueryClient, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, unwrap } from "./client";

const LISTS = "/api/runs/{run}/lists";
const LIST = "/api/runs/{run}/lists/{list_id}";

export function listsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "lists"],
    queryFn: ({ signal }) => unwrap(client.GET(LISTS, { params: { path: { run } }, signal })),
  });
}

export function listQuery(run: string, list: number) {
  return queryOptions({
    queryKey: ["run", run, "list", list],
    queryFn: ({ signal }) => unwrap(client.GET(LIST, { params: { path: { run, list_id: list } }, signal })),
  });
}

export function tagsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "tags"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/tags", { params: { path: { run } }, signal })),
  });
}

/** What shows lists or tags: the lists themselves, experts, and tables that are narrowed to a list or tag. */
function refresh(queries: QueryClient, run: string): Promise<unknown> {
  const shown = ["lists", "list", "tags", "expert", "experts"];
  return Promise.all(shown.map((kind) => queries.invalidateQueries({ queryKey: ["run", run, kind] })));
}

function useChange<T, R>(run: string, change: (value: T) => Promise<R>) {
  const queries = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => refresh(queries, run) });
}

export interface NewList {
  readonly name: string;
  readonly experts: readonly number[];
}

export function useMakeList(run: string) {
  return useChange(run, ({ name, experts }: NewList) =>
    unwrap(client.POST(LISTS, { params: { path: { run } }, body: { name, experts: [...experts] } })),
  );
}

export interface ListChange {
  readonly name?: string;
  readonly note?: string;
}

export function useChangeList(run: string, list: number) {
  return useChange(run, (body: ListChange) =>
    unwrap(client.PATCH(LIST, { params: { path: { run, list_id: list } }, body })),
  );
}

export function useDeleteList(run: string, list: number) {
  return useChange(run, () => unwrap(client.DELETE(LIST, { params: { path: { run, list_id: list } } })));
}

export interface Membership {
  readonly list: number;
  readonly experts: readonly number[];
  readonly inside: boolean;
}

/** Adds experts to a list, or takes them out. */
export function useMembership(run: string) {
  return useChange(run, async ({ list, experts, inside }: Membership) => {
    const path = { run, list_id: list };
    if (inside) {
      await unwrap(client.POST(`${LIST}/experts`, { params: { path }, body: { experts: [...experts] } }));
      return;
    }
    for (const expert of experts) {
      await unwrap(client.DELETE(`${LIST}/experts/{expert}`, { params: { path: { ...path, expert } } }));
    }
  });
}

export function useOrderList(run: string, list: number) {
  return useChange(run, (experts: readonly number[]) =>
    unwrap(
      client.PUT(`${LIST}/experts`, { params: { path: { run, list_id: list } }, body: { experts: [...experts] } }),
    ),
  );
}

export interface EntryNote {
  readonly expert: number;
  readonly note: string;
}

export function useNoteEntry(run: string, list: number) {
  return useChange(run, ({ expert, note }: EntryNote) =>
    unwrap(
      client.PUT(`${LIST}/experts/{expert}/note`, {
        params: { path: { run, list_id: list, expert } },
        body: { note },
      }),
    ),
  );
}

export interface TagChange {
  readonly tag: string;
  readonly put: boolean;
}

export function useTag(run: string, expert: number) {
  return useChange(run, ({ tag, put }: TagChange) => {
    const params = { path: { run, expert, tag } };
    return put
      ? unwrap(client.PUT("/api/runs/{run}/experts/{expert}/tags/{tag}", { params }))
      : unwrap(client.DELETE("/api/runs/{run}/experts/{expert}/tags/{tag}", { params }));
  });
}

/** Mutations of labels, notes and sessions. Each invalidates the queries that show them. */

import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";
import { sessionsQuery } from "./queries";
import type { AnnotationChange, SaveSessionRequest, SnapshotFiles, SnapshotRequest } from "./types";

/** What a page shows, as files. */
export function fetchSnapshot(run: string, body: SnapshotRequest): Promise<SnapshotFiles> {
  return unwrap(client.POST("/api/runs/{run}/snapshot", { params: { path: { run } }, body }));
}

/** Change the label, the note or the tags of an expert; null deletes the label or the note. */
export function annotate(run: string, expert: number, body: AnnotationChange): Promise<unknown> {
  return unwrap(client.PATCH("/api/runs/{run}/experts/{expert}", { params: { path: { run, expert } }, body }));
}

/** A change after which the queries whose keys begin with `queryKey` are fetched again. */
function useChange<T, R>(queryKey: QueryKey, change: (value: T) => Promise<R>) {
  const queries = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => queries.invalidateQueries({ queryKey }) });
}

/** Labels also appear in tables, similar experts and routing, so every query of the run is invalidated. */
export const useSetLabel = (run: string, expert: number) =>
  useChange(["run", run], (label: string | null) => annotate(run, expert, { label }));

export const useSetNote = (run: string, expert: number) =>
  useChange(["run", run, "expert", expert], (note: string | null) => annotate(run, expert, { note }));

/** Save a steering session under a name; resolves to the session with its short URL. */
export const useSaveSession = (run: string) =>
  useChange(sessionsQuery(run).queryKey, (body: SaveSessionRequest) =>
    unwrap(client.POST("/api/runs/{run}/sessions", { params: { path: { run } }, body })),
  );

export const useDeleteSession = (run: string) =>
  useChange(sessionsQuery(run).queryKey, (id: string) =>
    unwrap(client.DELETE("/api/sessions/{id}", { params: { path: { id } } })),
  );

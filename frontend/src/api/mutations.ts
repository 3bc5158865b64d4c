/** Mutations of labels, notes and sessions. Each invalidates the queries that show them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";
import { sessionsQuery } from "./queries";
import type { AnnotationChange, SteeringRequest } from "./types";

/** Change the label, the note or the tags of an expert; null deletes the label or the note. */
export function annotate(run: string, expert: number, body: AnnotationChange): Promise<unknown> {
  return unwrap(client.PATCH("/api/runs/{run}/experts/{expert}", { params: { path: { run, expert } }, body }));
}

/** Labels also appear in tables, similar experts and routing, so every query of the run is invalidated. */
export function useSetLabel(run: string, expert: number) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (label: string | null) => annotate(run, expert, { label }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["run", run] }),
  });
}

export function useSetNote(run: string, expert: number) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (note: string | null) => annotate(run, expert, { note }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["run", run, "expert", expert] }),
  });
}

/** Save a steering session under a name; resolves to the session with its short URL. */
export function useSaveSession(run: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: { name: string; steering: SteeringRequest }) =>
      unwrap(client.POST("/api/runs/{run}/sessions", { params: { path: { run } }, body })),
    onSuccess: () => queries.invalidateQueries({ queryKey: sessionsQuery(run).queryKey }),
  });
}

export function useDeleteSession(run: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => unwrap(client.DELETE("/api/sessions/{id}", { params: { path: { id } } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: sessionsQuery(run).queryKey }),
  });
}

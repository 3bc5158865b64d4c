/** Sign-in state. A server that listens only on this machine needs no sign-in. */

import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, unwrap } from "./http/client";

export const accessQuery = queryOptions({
  queryKey: ["access"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/access", { signal })),
  staleTime: Infinity,
});

/** Signing in or out refetches everything. */
export function useSignIn() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (token: string) => unwrap(client.POST("/api/access", { body: { token } })),
    onSuccess: () => queries.resetQueries(),
  });
}

export function useSignOut() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(client.DELETE("/api/access")),
    onSuccess: () => queries.resetQueries(),
  });
}

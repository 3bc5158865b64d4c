/** Who is signed in. On a server of this machine alone, everybody is, and nobody is asked. */

import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, unwrap } from "./client";

export const accessQuery = queryOptions({
  queryKey: ["access"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/access", { signal })),
  staleTime: Infinity,
});

/** Everything that was asked for without a token is asked for again. */
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

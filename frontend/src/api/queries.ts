/** Query options for useQuery and useInfiniteQuery. Keys start with the run, so that one call invalidates a run. */

import {
  infiniteQueryOptions,
  keepPreviousData,
  queryOptions,
  skipToken,
  useMutation,
  useQueryClient,
} from "@tanstack/react-query";

import { client, unwrap } from "./http/client";
import { ApiError } from "./http/errors";
import { retry } from "./http/retry";
import type { paths } from "./schema";
import type { ExpertPage, ExpertRow, FigureName, SimilarBy, Turn } from "./types";

const STALE_MS = 5 * 60_000;

/** Each expert of a run, matched to the most similar expert of another run. */
export function comparisonQuery(run: string, other: string) {
  return queryOptions({
    queryKey: ["run", run, "comparison", other],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/comparison/{other}", { params: { path: { run, other } }, signal })),
    staleTime: STALE_MS,
  });
}

/** Kinds of the documents of a run's text. */
export function kindsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "kinds"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/kinds", { params: { path: { run } }, signal })),
    staleTime: Infinity,
  });
}

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

/** Sign-in state. A server that listens only on this machine needs no sign-in. */
export function useSignOut() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => unwrap(client.DELETE("/api/access")),
    onSuccess: () => queries.resetQueries(),
  });
}

type ExpertQuery = NonNullable<paths["/api/runs/{run}/experts"]["get"]["parameters"]["query"]>;
/** Sort, order, search and filters of the experts table. */
export type ExpertFilters = Omit<ExpertQuery, "cursor" | "limit">;

const MINUTE = 60_000;

export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/health", { signal })),
  // The first prompt loads the language model, and a stopped server may return: the status line follows soon.
  refetchInterval: ({ state }) =>
    state.error !== null || state.data?.language_models.length === 0 ? 3_000 : MINUTE / 2,
});

export const runsQuery = queryOptions({
  queryKey: ["runs"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/runs", { signal })),
  refetchInterval: MINUTE / 4,
});

/** The columns of the experts; fixed for a server. */
export const columnsQuery = queryOptions({
  queryKey: ["columns"],
  queryFn: async ({ signal }) => (await unwrap(client.GET("/api/columns", { signal }))).columns,
  staleTime: Infinity,
  // Pages wait for it, and continue once the server is back.
  retry: (failures, error) => (error instanceof ApiError && error.status === 0) || retry(failures, error),
  retryDelay: 2000,
});

export function runQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "detail"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}", { params: { path: { run } }, signal })),
  });
}

export function expertsQuery(run: string, filters: ExpertFilters, limit = 60) {
  return infiniteQueryOptions({
    queryKey: ["run", run, "experts", filters, limit],
    queryFn: ({ signal, pageParam }) => {
      const query = { ...filters, limit, ...(pageParam === null ? {} : { cursor: pageParam }) };
      return unwrap(client.GET("/api/runs/{run}/experts", { params: { path: { run }, query }, signal }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    placeholderData: keepPreviousData,
  });
}

export function expertQuery(run: string, expert: number) {
  return queryOptions({
    queryKey: ["run", run, "expert", expert],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/experts/{expert}", { params: { path: { run, expert } }, signal })),
    staleTime: 5 * MINUTE,
  });
}

export function examplesQuery(run: string, expert: number, bin: number, limit: number) {
  return infiniteQueryOptions({
    queryKey: ["run", run, "contexts", expert, bin, limit],
    queryFn: ({ signal, pageParam }) => {
      const query = { bin: bin, limit, ...(pageParam === null ? {} : { cursor: pageParam }) };
      const path = { run, expert };
      return unwrap(client.GET("/api/runs/{run}/experts/{expert}/examples", { params: { path, query }, signal }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    staleTime: 5 * MINUTE,
  });
}

/** A random sample of all activations, reproducible by its seed. */
export function randomExamplesQuery(run: string, expert: number, seed: number) {
  return queryOptions({
    queryKey: ["run", run, "random-contexts", expert, seed],
    queryFn: ({ signal }) => {
      const params = { path: { run, expert }, query: { seed } };
      return unwrap(client.GET("/api/runs/{run}/experts/{expert}/examples/random", { params, signal }));
    },
    staleTime: 5 * MINUTE,
  });
}

/** The first few top examples, without paging. */
export function topExamplesQuery(run: string, expert: number, limit: number) {
  return queryOptions({
    queryKey: ["run", run, "top-contexts", expert, limit],
    queryFn: ({ signal }) => {
      const params = { path: { run, expert }, query: { bin: 0, limit } };
      return unwrap(client.GET("/api/runs/{run}/experts/{expert}/examples", { params, signal }));
    },
    staleTime: 5 * MINUTE,
  });
}

export function similarQuery(run: string, expert: number, by: SimilarBy) {
  return queryOptions({
    queryKey: ["run", run, "similar", expert, by],
    queryFn: ({ signal }) =>
      unwrap(
        client.GET("/api/runs/{run}/experts/{expert}/similar", {
          params: { path: { run, expert }, query: { by } },
          signal,
        }),
      ),
    staleTime: 5 * MINUTE,
  });
}

/** Tokens that an expert promotes and suppresses, computed on its strongest examples. */
export function writesQuery(run: string, expert: number) {
  return queryOptions({
    queryKey: ["run", run, "writes", expert],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/experts/{expert}/writes", { params: { path: { run, expert } }, signal })),
    staleTime: 5 * MINUTE,
  });
}

/** SVD of an expert's matrix. Needs the language model, so it is only fetched on demand. */
export function expertMapQuery(run: string, expert: number, isEnabled: boolean) {
  return queryOptions({
    queryKey: ["run", run, "expert", expert, "map"],
    enabled: isEnabled,
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/experts/{expert}/map", { params: { path: { run, expert } }, signal })),
  });
}

export function coactivationQuery(run: string, expert: number) {
  return queryOptions({
    queryKey: ["run", run, "together", expert],
    queryFn: ({ signal }) =>
      unwrap(
        client.GET("/api/runs/{run}/experts/{expert}/coactivation", { params: { path: { run, expert } }, signal }),
      ),
    staleTime: 5 * MINUTE,
  });
}

export function searchQuery(run: string, text: string, limit = 20) {
  return queryOptions({
    queryKey: ["run", run, "search", text, limit],
    queryFn:
      text === ""
        ? skipToken
        : ({ signal }) =>
            unwrap(client.GET("/api/runs/{run}/search", { params: { path: { run }, query: { text, limit } }, signal })),
    placeholderData: keepPreviousData,
  });
}

/** Experts of several layers that fire on words which the language model relates to a text. */
export function relatedQuery(runs: readonly string[], text: string, limit = 20) {
  return queryOptions({
    queryKey: ["related", runs, text, limit],
    queryFn:
      text === "" || runs.length === 0
        ? skipToken
        : ({ signal }) =>
            unwrap(client.GET("/api/search/related", { params: { query: { runs: [...runs], text, limit } }, signal })),
    staleTime: 5 * MINUTE,
  });
}

/** A text, or chat turns instead of it. */
export interface Prompt {
  readonly text: string;
  readonly turns?: readonly Turn[];
  /** Active experts per token; null for the run's own K. */
  readonly k?: number | null;
}

export function isEmptyPrompt({ text, turns = [] }: Prompt): boolean {
  return text === "" && turns.every((turn) => turn.text === "");
}

const promptBody = ({ text, turns = [], k = null }: Prompt) => ({
  ...(turns.length === 0 ? { text } : { turns: [...turns] }),
  ...(k !== null && { k }),
});

const asPrompt = (prompt: string | Prompt): Prompt => (typeof prompt === "string" ? { text: prompt } : prompt);

/** Routing of a prompt through a run, and through `others` in the same pass; disabled while the prompt is empty. */
export function routingQuery(run: string, prompt: string | Prompt, others: readonly string[] = []) {
  const request = asPrompt(prompt);
  const body = { ...promptBody(request), ...(others.length > 0 && { others: [...others] }) };
  return queryOptions({
    queryKey: ["run", run, "routing", body],
    queryFn: isEmptyPrompt(request)
      ? skipToken
      : ({ signal }) => unwrap(client.POST("/api/runs/{run}/routing", { params: { path: { run } }, body, signal })),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/**
 * Next-token distributions with the MLPs and with the layers of the run and of `others`. Slower than the routing itself,
 * so fetched separately.
 */
export function predictionsQuery(run: string, prompt: string | Prompt, others: readonly string[] = []) {
  const request = asPrompt(prompt);
  const body = { ...promptBody(request), ...(others.length > 0 && { others: [...others] }) };
  return queryOptions({
    queryKey: ["run", run, "predictions", body],
    queryFn: isEmptyPrompt(request)
      ? skipToken
      : ({ signal }) =>
          unwrap(client.POST("/api/runs/{run}/routing/predictions", { params: { path: { run } }, body, signal })),
    staleTime: 5 * MINUTE,
  });
}

export interface PassageSearch {
  readonly text: string;
  readonly position: number | null;
  readonly by: "mass" | "lift";
  readonly max_density: number | null;
}

/** Experts that fire on a passage; disabled while the passage is empty. */
export function passageQuery(run: string, search: PassageSearch) {
  return queryOptions({
    queryKey: ["run", run, "passage", search],
    queryFn:
      search.text === ""
        ? skipToken
        : ({ signal }) =>
            unwrap(
              client.POST("/api/runs/{run}/search/passage", {
                params: { path: { run } },
                body: { ...search, limit: 100 },
                signal,
              }),
            ),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** Effect of each of a token's experts on the next token; disabled without a position. */
export function directEffectsQuery(run: string, prompt: string | Prompt, position: number | null) {
  const request = promptBody(asPrompt(prompt));
  return queryOptions({
    queryKey: ["run", run, "effects", request, position],
    queryFn:
      position === null
        ? skipToken
        : ({ signal }) =>
            unwrap(
              client.POST("/api/runs/{run}/routing/effects", {
                params: { path: { run } },
                body: { ...request, position },
                signal,
              }),
            ),
    staleTime: 5 * MINUTE,
  });
}

/** Runs of other layers that can be combined with this one, and whether the model accepts chats. */
export function routingOptionsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "options"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/options", { params: { path: { run } }, signal })),
    staleTime: MINUTE,
  });
}

export function sessionsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "sessions"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/sessions", { params: { path: { run } }, signal })),
  });
}

export const showcaseQuery = queryOptions({
  queryKey: ["showcase"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/showcase", { signal })),
  staleTime: 5 * MINUTE,
});

export function sessionQuery(id: string) {
  return queryOptions({
    queryKey: ["session", id],
    queryFn:
      id === ""
        ? skipToken
        : ({ signal }) => unwrap(client.GET("/api/sessions/{id}", { params: { path: { id } }, signal })),
  });
}

/** Evaluations and probes of a run, the benchmark, and all runs of its MLP side by side and against K. */
export function evaluationsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "evaluations"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/evaluations", { params: { path: { run } }, signal })),
  });
}

export function figureQuery(name: FigureName, query: { readonly run?: string }) {
  return queryOptions({
    queryKey: ["figure", name, query],
    queryFn: ({ signal }) => unwrap(client.GET("/api/figures/{name}", { params: { path: { name }, query }, signal })),
    staleTime: MINUTE,
  });
}

/** Not cached: each call returns another random expert. */
export function fetchRandomExpert(run: string, among: "active" | "steerable" = "active") {
  return unwrap(client.GET("/api/runs/{run}/experts/random", { params: { path: { run }, query: { among } } }));
}

const EXPORT_PAGE_SIZE = 200;

/** Fetch all experts that match the filters, page by page. `onRows` receives the number fetched so far. */
export async function fetchAllExperts(run: string, filters: ExpertFilters, onRows: (count: number) => void) {
  const rows: ExpertRow[] = [];
  let cursor: string | null = null;
  do {
    const query: ExpertQuery = { ...filters, limit: EXPORT_PAGE_SIZE, ...(cursor === null ? {} : { cursor }) };
    const page: ExpertPage = await unwrap(client.GET("/api/runs/{run}/experts", { params: { path: { run }, query } }));
    rows.push(...page.experts);
    onRows(rows.length);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return rows;
}

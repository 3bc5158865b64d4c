/** Query options for useQuery and useInfiniteQuery. Keys start with the run, so that one call invalidates a run. */

import {
  infiniteQueryOptions,
  keepPreviousData,
  queryOptions,
  skipToken,
  useMutation,
  useQueryClient,
} from "@tanstack/react-query";

import { client, get, post, unwrap } from "./http/client";
import { ApiError } from "./http/errors";
import { retry } from "./http/retry";
import type { paths } from "./schema";
import type { ExpertPage, ExpertRow, FigureName, SimilarBy, Turn } from "./types";

export const MINUTE = 60_000;

/** Each expert of a run, matched to the most similar expert of another run. */
export const comparisonQuery = (run: string, other: string) =>
  queryOptions({
    queryKey: ["run", run, "comparison", other],
    queryFn: get("/api/runs/{run}/comparison/{other}", { path: { run, other } }),
    staleTime: 5 * MINUTE,
  });

/** Kinds of the documents of a run's text. */
export const kindsQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "kinds"],
    queryFn: async (context) =>
      (await get("/api/runs/{run}/options", { path: { run }, query: { kinds: true } })(context)).kinds,
    staleTime: Infinity,
  });

export const accessQuery = queryOptions({
  queryKey: ["access"],
  queryFn: get("/api/access", {}),
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

export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => get("/api/health", {})({ signal }),
  // The first prompt loads the language model, and a stopped server may return: the status line follows soon.
  refetchInterval: ({ state }) =>
    state.error !== null || state.data?.language_models.length === 0 ? 3_000 : MINUTE / 2,
});

export const runsQuery = queryOptions({
  queryKey: ["runs"],
  queryFn: get("/api/runs", {}),
  refetchInterval: MINUTE / 4,
});

/** The columns of the experts; fixed for a server. */
export const columnsQuery = queryOptions({
  queryKey: ["columns"],
  queryFn: async (context) => (await get("/api/columns", {})(context)).columns,
  staleTime: Infinity,
  // Pages wait for it, and continue once the server is back.
  retry: (failures, error) => (error instanceof ApiError && error.status === 0) || retry(failures, error),
  retryDelay: 2000,
});

export const runQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "detail"],
    queryFn: get("/api/runs/{run}", { path: { run } }),
  });

type ExpertQuery = NonNullable<paths["/api/runs/{run}/experts"]["get"]["parameters"]["query"]>;
/** Sort, order, search and filters of the experts table. */
export type ExpertFilters = Omit<ExpertQuery, "cursor" | "limit">;

/** The first page, and the address of each next one. */
const PAGES = {
  initialPageParam: null as string | null,
  getNextPageParam: (page: { readonly next_cursor: string | null }) => page.next_cursor,
};
const fromCursor = (cursor: string | null) => (cursor === null ? {} : { cursor });

export const expertsQuery = (run: string, filters: ExpertFilters, limit = 60) =>
  infiniteQueryOptions({
    ...PAGES,
    queryKey: ["run", run, "experts", filters, limit],
    queryFn: ({ signal, pageParam }) =>
      get("/api/runs/{run}/experts", { path: { run }, query: { ...filters, limit, ...fromCursor(pageParam) } })({
        signal,
      }),
    placeholderData: keepPreviousData,
  });

/** Rows of at most 200 experts. */
export const expertRowsQuery = (run: string | null, experts: readonly number[]) =>
  queryOptions({
    queryKey: ["run", run, "experts", experts],
    queryFn:
      run === null || experts.length === 0
        ? skipToken
        : get("/api/runs/{run}/experts", {
            path: { run },
            query: { sort: "expert", order: "asc", among: experts.slice(0, 200).join(","), limit: 200 },
          }),
    placeholderData: keepPreviousData,
  });

export const expertQuery = (run: string, expert: number) =>
  queryOptions({
    queryKey: ["run", run, "expert", expert],
    queryFn: get("/api/runs/{run}/experts/{expert}", { path: { run, expert } }),
    staleTime: 5 * MINUTE,
  });

export const examplesQuery = (run: string, expert: number, bin: number, limit: number) =>
  infiniteQueryOptions({
    ...PAGES,
    queryKey: ["run", run, "examples", expert, bin, limit],
    queryFn: ({ signal, pageParam }) => {
      const params = { path: { run, expert }, query: { bin, limit, ...fromCursor(pageParam) } };
      return get("/api/runs/{run}/experts/{expert}/examples", params)({ signal });
    },
    staleTime: 5 * MINUTE,
  });

/** A random sample of all activations, reproducible by its seed. */
export const randomExamplesQuery = (run: string, expert: number, seed: number) =>
  queryOptions({
    queryKey: ["run", run, "random-examples", expert, seed],
    queryFn: get("/api/runs/{run}/experts/{expert}/examples", { path: { run, expert }, query: { seed } }),
    staleTime: 5 * MINUTE,
  });

/** The first few top examples, without paging. */
export const topExamplesQuery = (run: string, expert: number, limit: number) =>
  queryOptions({
    queryKey: ["run", run, "top-examples", expert, limit],
    queryFn: get("/api/runs/{run}/experts/{expert}/examples", { path: { run, expert }, query: { bin: 0, limit } }),
    staleTime: 5 * MINUTE,
  });

export const similarQuery = (run: string, expert: number, by: SimilarBy, limit = 8) =>
  queryOptions({
    queryKey: ["run", run, "similar", expert, by, limit],
    queryFn: get("/api/runs/{run}/experts/{expert}/similar", { path: { run, expert }, query: { by, limit } }),
    staleTime: 5 * MINUTE,
  });

/** Tokens that an expert promotes and suppresses, computed on its strongest examples. */
export const writesQuery = (run: string, expert: number) =>
  queryOptions({
    queryKey: ["run", run, "writes", expert],
    queryFn: get("/api/runs/{run}/experts/{expert}/writes", { path: { run, expert } }),
    staleTime: 5 * MINUTE,
  });

/** SVD of an expert's matrix. Needs the language model, so it is only fetched on demand. */
export const expertMapQuery = (run: string, expert: number, isEnabled: boolean) =>
  queryOptions({
    queryKey: ["run", run, "expert", expert, "map"],
    enabled: isEnabled,
    queryFn: get("/api/runs/{run}/experts/{expert}/map", { path: { run, expert } }),
  });

export const searchQuery = (run: string, text: string, limit = 20) =>
  queryOptions({
    queryKey: ["run", run, "search", text, limit],
    queryFn:
      text === ""
        ? skipToken
        : async (context) =>
            (await get("/api/search", { query: { runs: [run], text, limit } })(context)).flatMap(({ hits }) => hits),
    placeholderData: keepPreviousData,
  });

/** Experts of several layers that fire on words which the language model relates to a text. */
export const relatedQuery = (runs: readonly string[], text: string, limit = 20) =>
  queryOptions({
    queryKey: ["related", runs, text, limit],
    queryFn:
      text === "" || runs.length === 0
        ? skipToken
        : get("/api/search", { query: { runs: [...runs], text, by: "related", limit } }),
    staleTime: 5 * MINUTE,
  });

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
    queryFn: isEmptyPrompt(request) ? skipToken : post("/api/runs/{run}/routing", body, { path: { run } }),
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
    queryFn: isEmptyPrompt(request) ? skipToken : post("/api/runs/{run}/routing/predictions", body, { path: { run } }),
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
export const passageQuery = (run: string, search: PassageSearch) =>
  queryOptions({
    queryKey: ["run", run, "passage", search],
    queryFn:
      search.text === ""
        ? skipToken
        : post("/api/runs/{run}/search/passage", { ...search, limit: 100 }, { path: { run } }),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });

/** Effect of each of a token's experts on the next token; disabled without a position. */
export function directEffectsQuery(run: string, prompt: string | Prompt, position: number | null) {
  const request = promptBody(asPrompt(prompt));
  return queryOptions({
    queryKey: ["run", run, "effects", request, position],
    queryFn:
      position === null
        ? skipToken
        : post("/api/runs/{run}/routing/effects", { ...request, position }, { path: { run } }),
    staleTime: 5 * MINUTE,
  });
}

/** Runs of other layers that can be combined with this one, and whether the model accepts chats. */
export const routingOptionsQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "options"],
    queryFn: get("/api/runs/{run}/options", { path: { run } }),
    staleTime: MINUTE,
  });

export const sessionsQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "sessions"],
    queryFn: get("/api/runs/{run}/sessions", { path: { run } }),
  });

export const showcaseQuery = queryOptions({
  queryKey: ["showcase"],
  queryFn: get("/api/showcase", {}),
  staleTime: 5 * MINUTE,
});

export const sessionQuery = (id: string) =>
  queryOptions({
    queryKey: ["session", id],
    queryFn: id === "" ? skipToken : get("/api/sessions/{id}", { path: { id } }),
  });

/** Everything measured of a run, the benchmark, and all runs of its MLP side by side and against K. */
export const reportQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "report"],
    queryFn: get("/api/runs/{run}/report", { path: { run } }),
  });

export const figureQuery = (name: FigureName, query: { readonly run?: string }) =>
  queryOptions({
    queryKey: ["figure", name, query],
    queryFn: get("/api/figures/{name}", { path: { name }, query }),
    staleTime: MINUTE,
  });

/** Calls `visit` with a random expert, which is another one each time. */
export async function visitRandomExpert(
  run: string,
  visit: (expert: number) => unknown,
  among: "active" | "steerable" = "active",
) {
  const query = { among, sort: "random", limit: 1 } as const;
  const { experts } = await unwrap(client.GET("/api/runs/{run}/experts", { params: { path: { run }, query } }));
  experts.forEach(({ expert }) => visit(expert));
}

const EXPORT_PAGE_SIZE = 200;

/** Fetch all experts that match the filters, page by page. `onRows` receives the number fetched so far. */
export async function fetchAllExperts(run: string, filters: ExpertFilters, onRows: (count: number) => void) {
  const rows: ExpertRow[] = [];
  let cursor: string | null = null;
  do {
    const query: ExpertQuery = { ...filters, limit: EXPORT_PAGE_SIZE, ...fromCursor(cursor) };
    const page: ExpertPage = await unwrap(client.GET("/api/runs/{run}/experts", { params: { path: { run }, query } }));
    rows.push(...page.experts);
    onRows(rows.length);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return rows;
}

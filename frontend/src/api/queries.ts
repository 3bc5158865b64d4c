/** What pages ask the server for, as options for useQuery and useInfiniteQuery. Keys start with the run, so that one call forgets a run. */

import { infiniteQueryOptions, keepPreviousData, queryOptions, skipToken } from "@tanstack/react-query";

import { client, unwrap } from "./client";
import type { paths } from "./schema";
import type { ExpertPage, ExpertRow, FigureName, SimilarBy, Turn } from "./types";

type ExpertQuery = NonNullable<paths["/api/runs/{run}/experts"]["get"]["parameters"]["query"]>;
/** Sort, order, search and filters of the experts table. */
export type ExpertFilters = Omit<ExpertQuery, "cursor" | "limit">;

const MINUTE = 60_000;

export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/health", { signal })),
  refetchInterval: MINUTE / 2,
});

export const runsQuery = queryOptions({
  queryKey: ["runs"],
  queryFn: ({ signal }) => unwrap(client.GET("/api/runs", { signal })),
  refetchInterval: MINUTE / 4,
});

export function runQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "detail"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}", { params: { path: { run } }, signal })),
  });
}

/** The experts of a run, each with the most similar one of another. */
export function comparisonQuery(run: string, other: string) {
  return queryOptions({
    queryKey: ["run", run, "comparison", other],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/comparison/{other}", { params: { path: { run, other } }, signal })),
    staleTime: 5 * MINUTE,
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

export function contextsQuery(run: string, expert: number, interval: number, limit: number) {
  return infiniteQueryOptions({
    queryKey: ["run", run, "contexts", expert, interval, limit],
    queryFn: ({ signal, pageParam }) => {
      const query = { interval, limit, ...(pageParam === null ? {} : { cursor: pageParam }) };
      const path = { run, expert };
      return unwrap(client.GET("/api/runs/{run}/experts/{expert}/contexts", { params: { path, query }, signal }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    staleTime: 5 * MINUTE,
  });
}

/** Contexts at random over all active tokens, drawn with a seed. */
export function randomContextsQuery(run: string, expert: number, seed: number) {
  return queryOptions({
    queryKey: ["run", run, "random-contexts", expert, seed],
    queryFn: ({ signal }) => {
      const params = { path: { run, expert }, query: { seed } };
      return unwrap(client.GET("/api/runs/{run}/experts/{expert}/contexts/random", { params, signal }));
    },
    staleTime: 5 * MINUTE,
  });
}

/** The few largest contexts of an expert, where no more will be asked for. */
export function topContextsQuery(run: string, expert: number, limit: number) {
  return queryOptions({
    queryKey: ["run", run, "top-contexts", expert, limit],
    queryFn: ({ signal }) => {
      const params = { path: { run, expert }, query: { interval: 0, limit } };
      return unwrap(client.GET("/api/runs/{run}/experts/{expert}/contexts", { params, signal }));
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

/** What an expert writes and how much it matters, where that has been measured. */
export function influenceQuery(run: string, expert: number) {
  return queryOptions({
    queryKey: ["run", run, "influence", expert],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/experts/{expert}/influence", { params: { path: { run, expert } }, signal })),
    staleTime: 5 * MINUTE,
  });
}

/** What fires just before an expert, with it, and just after. */
/** An expert's matrix, taken apart; needs the language model, so only on demand. */
export function expertMapQuery(run: string, expert: number, isWanted: boolean) {
  return queryOptions({
    queryKey: ["run", run, "expert", expert, "map"],
    enabled: isWanted,
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/experts/{expert}/map", { params: { path: { run, expert } }, signal })),
  });
}

export function togetherQuery(run: string, expert: number) {
  return queryOptions({
    queryKey: ["run", run, "together", expert],
    queryFn: ({ signal }) =>
      unwrap(client.GET("/api/runs/{run}/experts/{expert}/together", { params: { path: { run, expert } }, signal })),
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

/** What is read: a text, or chat turns in its place. */
export interface Prompt {
  readonly text: string;
  readonly turns?: readonly Turn[];
  /** Experts of each token that are let through; null or nothing for all that the run has. */
  readonly k?: number | null;
}

export function isNoPrompt({ text, turns = [] }: Prompt): boolean {
  return text === "" && turns.every((turn) => turn.text === "");
}

const promptBody = ({ text, turns = [], k = null }: Prompt) => ({
  ...(turns.length === 0 ? { text } : { turns: [...turns] }),
  ...(k !== null && { k }),
});

const asPrompt = (prompt: string | Prompt): Prompt => (typeof prompt === "string" ? { text: prompt } : prompt);

/** Routing of a text; nothing is asked for while there is none. */
export function routingQuery(run: string, prompt: string | Prompt) {
  const asked = asPrompt(prompt);
  const body = promptBody(asked);
  return queryOptions({
    queryKey: ["run", run, "routing", body],
    queryFn: isNoPrompt(asked)
      ? skipToken
      : ({ signal }) => unwrap(client.POST("/api/runs/{run}/routing", { params: { path: { run } }, body, signal })),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** What is expected after each token, with and without the layer: more work than the routing, so it comes after it. */
export function predictionsQuery(run: string, prompt: string | Prompt) {
  const asked = asPrompt(prompt);
  const body = promptBody(asked);
  return queryOptions({
    queryKey: ["run", run, "predictions", body],
    queryFn: isNoPrompt(asked)
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
  readonly max_usage: number | null;
}

/** Which experts fire on a passage; nothing is asked for while there is none. */
export function passageQuery(run: string, asked: PassageSearch) {
  return queryOptions({
    queryKey: ["run", run, "passage", asked],
    queryFn:
      asked.text === ""
        ? skipToken
        : ({ signal }) =>
            unwrap(
              client.POST("/api/runs/{run}/search/passage", {
                params: { path: { run } },
                body: { ...asked, limit: 100 },
                signal,
              }),
            ),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** What each expert on a token does by itself to the next one; nothing is asked for without a position. */
export function effectsQuery(run: string, prompt: string | Prompt, position: number | null) {
  const asked = promptBody(asPrompt(prompt));
  return queryOptions({
    queryKey: ["run", run, "effects", asked, position],
    queryFn:
      position === null
        ? skipToken
        : ({ signal }) =>
            unwrap(
              client.POST("/api/runs/{run}/routing/effects", {
                params: { path: { run } },
                body: { ...asked, position },
                signal,
              }),
            ),
    staleTime: 5 * MINUTE,
  });
}

/** Routing through several runs of one language model at once. */
export function jointRoutingQuery(runs: readonly string[], prompt: Prompt) {
  const body = { runs: [...runs], ...promptBody(prompt) };
  return queryOptions({
    queryKey: ["run", runs[0], "joint-routing", body],
    queryFn:
      isNoPrompt(prompt) || runs.length < 2
        ? skipToken
        : ({ signal }) => unwrap(client.POST("/api/routing", { body, signal })),
    staleTime: 5 * MINUTE,
    placeholderData: keepPreviousData,
  });
}

/** Runs of other layers that go together with this one, and whether its prompts can be chats. */
export function liveQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "live"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/live", { params: { path: { run } }, signal })),
    staleTime: MINUTE,
  });
}

export function sessionsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "sessions"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/sessions", { params: { path: { run } }, signal })),
  });
}

export function sessionQuery(id: string) {
  return queryOptions({
    queryKey: ["session", id],
    queryFn:
      id === ""
        ? skipToken
        : ({ signal }) => unwrap(client.GET("/api/sessions/{id}", { params: { path: { id } }, signal })),
  });
}

export interface FigureQuery {
  readonly run?: string;
  readonly expert?: number;
}

export function evaluationsQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "evaluations"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/evaluations", { params: { path: { run } }, signal })),
  });
}

export function probesQuery(run: string) {
  return queryOptions({
    queryKey: ["run", run, "probes"],
    queryFn: ({ signal }) => unwrap(client.GET("/api/runs/{run}/probes", { params: { path: { run } }, signal })),
  });
}

export function figureQuery(name: FigureName, query: FigureQuery) {
  return queryOptions({
    queryKey: ["figure", name, query],
    queryFn: ({ signal }) => unwrap(client.GET("/api/figures/{name}", { params: { path: { name }, query }, signal })),
    staleTime: MINUTE,
  });
}

/** An expert at random, never cached. */
export function fetchRandomExpert(run: string) {
  return unwrap(client.GET("/api/runs/{run}/experts/random", { params: { path: { run } } }));
}

const EXPORT_PAGE = 200;

/** Every expert that fits, page by page. `onRows` hears how many have come. */
export async function fetchAllExperts(run: string, filters: ExpertFilters, onRows: (count: number) => void) {
  const rows: ExpertRow[] = [];
  let cursor: string | null = null;
  do {
    const query: ExpertQuery = { ...filters, limit: EXPORT_PAGE, ...(cursor === null ? {} : { cursor }) };
    const page: ExpertPage = await unwrap(client.GET("/api/runs/{run}/experts", { params: { path: { run }, query } }));
    rows.push(...page.experts);
    onRows(rows.length);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return rows;
}

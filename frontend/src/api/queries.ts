/** Query options for useQuery and useInfiniteQuery. Keys start with the run, so that one call invalidates a run. */

import {
  infiniteQueryOptions,
  keepPreviousData,
  type QueryFunction,
  type QueryKey,
  queryOptions,
  type SkipToken,
  skipToken,
} from "@tanstack/react-query";

import { ApiError, client, get, post, type Progress, retry, streamResult, unwrap } from "./http";
import type { paths } from "./schema";
import type {
  CircuitCheck,
  CircuitEffectsRequest,
  CircuitGraph,
  CircuitRequest,
  CircuitResponse,
  CurveName,
  EditPrice,
  ExpertPage,
  ExpertRow,
  FigureName,
  FindRequest,
  FoundExpert,
  PriceRequest,
  SimilarBy,
  Turn,
} from "./types";

const MINUTE = 60_000;

/** A query whose response stays valid for a while. */
const kept = <const K extends QueryKey, T>(queryKey: K, queryFn: QueryFunction<T, K>, staleTime = 5 * MINUTE) =>
  queryOptions({ queryKey, queryFn, staleTime });

/** As `kept`; disabled while there is nothing to ask. */
const asked = <const K extends QueryKey, T>(queryKey: K, queryFn: QueryFunction<T, K> | SkipToken) =>
  queryOptions({ queryKey, queryFn, staleTime: 5 * MINUTE });

/** Each expert of a run, matched to the most similar expert of another run. */
export const comparisonQuery = (run: string, other: string) =>
  kept(["run", run, "comparison", other], get("/api/runs/{run}/comparison/{other}", { path: { run, other } }));

/** Kinds of the documents of a run's text. */
export const kindsQuery = (run: string) =>
  kept(
    ["run", run, "kinds"],
    async (context) => (await get("/api/runs/{run}/options", { path: { run }, query: { kinds: true } })(context)).kinds,
    Infinity,
  );

/** Sign-in state. A server that listens only on this machine needs no sign-in. */
export const accessQuery = kept(["access"], get("/api/access", {}), Infinity);

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

/** The columns of the experts and the glossary; fixed for a server. */
export const columnsQuery = queryOptions({
  queryKey: ["columns"],
  queryFn: get("/api/columns", {}),
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
  kept(["run", run, "expert", expert], get("/api/runs/{run}/experts/{expert}", { path: { run, expert } }));

const EXAMPLES = "/api/runs/{run}/experts/{expert}/examples";

export const examplesQuery = (run: string, expert: number, bin: number, limit: number) =>
  infiniteQueryOptions({
    ...PAGES,
    queryKey: ["run", run, "examples", expert, bin, limit],
    queryFn: ({ signal, pageParam }) => {
      const params = { path: { run, expert }, query: { bin, limit, ...fromCursor(pageParam) } };
      return get(EXAMPLES, params)({ signal });
    },
    staleTime: 5 * MINUTE,
  });

/** A random sample of all activations, reproducible by its seed. */
export const randomExamplesQuery = (run: string, expert: number, seed: number) =>
  kept(["run", run, "random-examples", expert, seed], get(EXAMPLES, { path: { run, expert }, query: { seed } }));

/** The first few examples of a bin, by default the strongest of all, without paging. */
export const topExamplesQuery = (run: string, expert: number, limit: number, bin = 0) =>
  kept(["run", run, "first", expert, limit, bin], get(EXAMPLES, { path: { run, expert }, query: { bin, limit } }));

export const similarQuery = (run: string, expert: number, by: SimilarBy, limit = 8) =>
  kept(
    ["run", run, "similar", expert, by, limit],
    get("/api/runs/{run}/experts/{expert}/similar", { path: { run, expert }, query: { by, limit } }),
  );

/** Tokens that an expert promotes and suppresses, computed on its strongest examples. */
export const writesQuery = (run: string, expert: number) =>
  kept(["run", run, "writes", expert], get("/api/runs/{run}/experts/{expert}/writes", { path: { run, expert } }));

/** SVD of an expert's matrix. Needs the language model, so it is only fetched on demand. */
export const expertMapQuery = (run: string, expert: number, isEnabled: boolean) =>
  queryOptions({
    queryKey: ["run", run, "expert", expert, "map"],
    enabled: isEnabled,
    queryFn: get("/api/runs/{run}/experts/{expert}/map", { path: { run, expert } }),
  });

/** Experts that match a text, of some runs of one language model, best first. */
export const searchQuery = (runs: readonly string[], text: string, by: "text" | "related" = "text", limit = 20) =>
  queryOptions({
    queryKey: ["run", runs[0], "search", by, runs, text, limit],
    queryFn:
      text === "" || runs.length === 0
        ? skipToken
        : get("/api/search", { query: { runs: [...runs], text, by, limit } }),
    ...(by === "text" && { placeholderData: keepPreviousData }),
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
  const queryFn = isEmptyPrompt(request) ? skipToken : post("/api/runs/{run}/routing", body, { path: { run } });
  return { ...asked(["run", run, "routing", body], queryFn), placeholderData: keepPreviousData };
}

/**
 * Next-token distributions with the MLPs and with the layers of the run and of `others`. Slower than the routing itself,
 * so fetched separately.
 */
export function predictionsQuery(run: string, prompt: string | Prompt, others: readonly string[] = []) {
  const request = asPrompt(prompt);
  const body = { ...promptBody(request), ...(others.length > 0 && { others: [...others] }) };
  return asked(
    ["run", run, "predictions", body],
    isEmptyPrompt(request) ? skipToken : post("/api/runs/{run}/routing/predictions", body, { path: { run } }),
  );
}

export interface PassageSearch {
  readonly text: string;
  readonly position: number | null;
  readonly by: "mass" | "lift";
  readonly max_density: number | null;
  readonly weak_last: boolean;
}

/** Experts that fire on a passage; disabled while the passage is empty. */
export function passageQuery(run: string, search: PassageSearch) {
  const ask = post("/api/runs/{run}/search/passage", { ...search, limit: 200 }, { path: { run } });
  const query = asked(["run", run, "passage", search], search.text === "" ? skipToken : ask);
  return { ...query, placeholderData: keepPreviousData };
}

/** Effect of each of a token's experts on the next token; disabled without a position. */
export function directEffectsQuery(run: string, prompt: string | Prompt, position: number | null) {
  const request = promptBody(asPrompt(prompt));
  return asked(
    ["run", run, "effects", request, position],
    position === null
      ? skipToken
      : post("/api/runs/{run}/routing/effects", { ...request, position }, { path: { run } }),
  );
}

/** Runs of other layers that can be combined with this one, and whether the model accepts chats. */
export const routingOptionsQuery = (run: string) =>
  kept(["run", run, "options"], get("/api/runs/{run}/options", { path: { run } }), MINUTE);

/** A query function of a task of seconds or minutes, which keeps its progress for `progressQuery`. */
const task =
  <Result, K extends QueryKey = QueryKey>(url: string, request: unknown): QueryFunction<Result, K> =>
  ({ client: queries, queryKey, signal }) =>
    streamResult<Result>(url, request, signal, (progress) => {
      queries.setQueryData(progressQuery(queryKey).queryKey, progress);
    });

/** How far the task with this key is. */
export const progressQuery = (key: QueryKey) =>
  queryOptions<Progress>({ queryKey: ["progress", ...key], queryFn: skipToken });

/** The circuit of a prompt, with predicted effects. The first run is the page's own; at most one per layer. */
export const circuitQuery = (request: CircuitRequest | null) =>
  asked(
    ["run", request?.runs[0], "circuit", request],
    request === null ? skipToken : task<CircuitResponse>("/api/circuits", request),
  );

/** Measured changes when groups of experts are ablated; disabled without a request. */
export const circuitEffectsQuery = (request: CircuitEffectsRequest | null) =>
  asked(
    ["run", request?.runs[0], "circuit-effects", request],
    request === null ? skipToken : post("/api/circuits/effects", request),
  );

/** The measured effects of a circuit. */
export const circuitCheckQuery = (request: CircuitRequest, graph: CircuitGraph) =>
  kept(
    ["run", request.runs[0], "circuit-check", request],
    task<CircuitCheck>("/api/circuits/check", { ...request, graph }),
  );

/** Experts that make wanted text more probable. */
export const findQuery = (request: FindRequest | null) =>
  asked(["run", request?.runs[0], "find", request], request === null ? skipToken : post("/api/find", request));

/** Measured effects of each found expert. */
export function effectsQuery(request: FindRequest | null, experts: readonly FoundExpert[]) {
  const groups = experts.map(({ edit }) => [edit]);
  return asked(
    ["run", request?.runs[0], "find-effects", request, groups],
    request === null || groups.length === 0 ? skipToken : post("/api/find/effects", { ...request, groups }),
  );
}

export const sessionsQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "sessions"],
    queryFn: get("/api/runs/{run}/sessions", { path: { run } }),
  });

export const showcaseQuery = kept(["showcase"], get("/api/showcase", {}));

export const sessionQuery = (id: string) =>
  queryOptions({
    queryKey: ["session", id],
    queryFn: id === "" ? skipToken : get("/api/sessions/{id}", { path: { id } }),
  });

/** The price of edits once it was measured, or came with a session: it is never fetched. */
export const priceQuery = (run: string, edits: PriceRequest["edits"]) =>
  queryOptions<EditPrice>({
    queryKey: ["run", run, "price", edits],
    queryFn: skipToken,
    staleTime: Infinity,
    gcTime: Infinity,
  });

/** Everything measured of a run, the benchmark, and all runs of its MLP side by side and against K. */
export const reportQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run, "report"],
    queryFn: get("/api/runs/{run}/report", { path: { run } }),
  });

export const figureQuery = (
  name: FigureName,
  query: { readonly run?: string; readonly curve?: CurveName; readonly compare?: string },
) => kept(["figure", name, query], get("/api/figures/{name}", { path: { name }, query }), MINUTE);

const LIST = "/api/runs/{run}/lists/{list_id}";

export const listsQuery = (run: string) =>
  queryOptions({ queryKey: ["run", run, "lists"], queryFn: get("/api/runs/{run}/lists", { path: { run } }) });

export const listQuery = (run: string, list: number) =>
  queryOptions({ queryKey: ["run", run, "list", list], queryFn: get(LIST, { path: { run, list_id: list } }) });

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

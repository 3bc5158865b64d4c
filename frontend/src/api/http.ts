/** Requests to the server, checked against its OpenAPI schema: responses, event streams, errors and retries. */

import createClient from "openapi-fetch";

import { rememberPrompt } from "@/lib/browser/stores";

import type { paths } from "./schema";
import type {
  AblationEvent,
  ContrastEvent,
  ContrastRequest,
  ErrorEvent,
  PriceEvent,
  PriceRequest,
  SteeringEvent,
  SteeringRequest,
  StrengthSweepEvent,
  StrengthSweepRequest,
} from "./types";

export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly code: string,
    message: string,
    /** HTTP status; 0 when there was no response. */
    readonly status: number,
    /** The server's Retry-After in seconds; null if absent. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

interface ErrorShape {
  readonly error: { readonly code: string; readonly message: string };
}

function isErrorShape(body: unknown): body is ErrorShape {
  if (typeof body !== "object" || body === null || !("error" in body)) return false;
  const { error } = body;
  return typeof error === "object" && error !== null && "code" in error && "message" in error;
}

export function toApiError(body: unknown, { status, headers }: Response): ApiError {
  const header = headers.get("Retry-After");
  const retryAfter = header === null || !/^\d+$/.test(header) ? null : Number(header);
  // A prompt that is too long would be rejected on every page: links carry it no further.
  if (isErrorShape(body) && body.error.code === "prompt-too-long") rememberPrompt("");
  if (isErrorShape(body)) return new ApiError(body.error.code, body.error.message, status, retryAfter);
  const message = `The server returned status ${status} without an error message.`;
  return new ApiError("unreadable-answer", message, status, retryAfter);
}

export const NO_RESPONSE = "The server does not respond. Check that mxd serve is still running.";

/** For rejected requests: a broken connection is no response. */
export function throwBroken(error: unknown): never {
  throw error instanceof TypeError ? new ApiError("no-answer", NO_RESPONSE, 0) : (error as Error);
}

/** A message for any failure. Messages of unexpected exceptions are not meant for users and are replaced. */
export function messageOf(error: unknown): string {
  return error instanceof ApiError ? error.message : "Something went wrong on this page. Reload to try again.";
}

// React Query retries network errors, and errors with a short Retry-After.

const MAX_RETRIES = 2;
/** A longer Retry-After is shown to the user instead of waited for. */
const MAX_RETRY_AFTER_SECONDS = 10;

export function retry(count: number, error: Error): boolean {
  if (count >= MAX_RETRIES) return false;
  if (!(error instanceof ApiError) || error.status === 0) return true;
  return error.retryAfter !== null && error.retryAfter <= MAX_RETRY_AFTER_SECONDS;
}

/** Delay in milliseconds. Random jitter keeps clients from retrying at the same moment. */
export function retryDelay(count: number, error: Error): number {
  const seconds = error instanceof ApiError ? error.retryAfter : null;
  return seconds === null ? 1000 * 2 ** count : 1000 * seconds * (1 + Math.random() / 2);
}

export const client = createClient<paths>({ baseUrl: location.origin });

interface ApiResult<T> {
  readonly data?: T | undefined;
  readonly error?: unknown;
  readonly response: Response;
}

/** Return the data of a response or throw an ApiError. Aborted calls keep their own error. */
export async function unwrap<T>(call: Promise<ApiResult<T>>): Promise<T> {
  const result = await call.catch(throwBroken);
  if (!result.response.ok) throw toApiError(result.error, result.response);
  return result.data as T;
}

type Method = "get" | "post";
type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Readonly<Record<M, object>> ? P : never;
}[keyof paths];
type Parameters<M extends Method, P extends PathOf<M>> = paths[P][M] extends { readonly parameters: infer T }
  ? T
  : never;
type Body<P extends PathOf<"post">> = paths[P]["post"] extends {
  readonly requestBody: { readonly content: { readonly "application/json": infer T } };
}
  ? T
  : never;
type Answer<M extends Method, P extends PathOf<M>> = paths[P][M] extends {
  readonly responses: { readonly 200: { readonly content: { readonly "application/json": infer T } } };
}
  ? T
  : never;

interface QueryContext {
  readonly signal: AbortSignal;
}
type Call = (path: string, init: object) => Promise<ApiResult<never>>;

/** A query function that gets a path, until its query is cancelled. */
export function get<P extends PathOf<"get">>(path: P, params: Parameters<"get", P>) {
  return ({ signal }: QueryContext): Promise<Answer<"get", P>> =>
    unwrap((client.GET as Call)(path, { params, signal }));
}

/** A query function that posts a body to a path, until its query is cancelled. */
export function post<P extends PathOf<"post">>(path: P, body: Body<P>, params: Partial<Parameters<"post", P>> = {}) {
  return ({ signal }: QueryContext): Promise<Answer<"post", P>> =>
    unwrap((client.POST as Call)(path, { params, body, signal }));
}

/** The data of server-sent events, as far as they are complete, and the rest. Chunks may end anywhere. */
export function readEvents(text: string): { readonly data: readonly string[]; readonly rest: string } {
  const blocks = text.split(/\r?\n\r?\n/);
  const rest = blocks.pop() ?? "";
  const linesOf = (block: string) => block.split(/\r?\n/).flatMap((line) => /^data: ?([^]*)$/.exec(line)?.[1] ?? []);
  const data = blocks.map((block) => linesOf(block).join("\n")).filter((joined) => joined !== "");
  return { data, rest };
}

/** Events of a request. Ending the loop early cancels it on the server. */
async function* events<Event>(url: string, request: unknown, signal: AbortSignal): AsyncGenerator<Event> {
  const headers = { "content-type": "application/json", accept: "text/event-stream" };
  const init = { method: "POST", headers, body: JSON.stringify(request), signal };
  const response = await fetch(url, init).catch(throwBroken);
  if (!response.ok || response.body === null) throw toApiError(await response.json().catch(() => null), response);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(throwBroken);
      if (done) return;
      const { data, rest } = readEvents(text + decoder.decode(value, { stream: true }));
      text = rest;
      for (const event of data) yield JSON.parse(event) as Event;
    }
  } finally {
    // Leaving the loop early closes the connection, so that the server stops generating.
    await reader.cancel().catch(() => undefined);
  }
}

export interface Progress {
  readonly event: "progress";
  readonly done: number;
  readonly total: number;
}

/** The result of a long task, after its progress. Aborting the signal stops it on the server. */
export async function streamResult<Result>(
  url: string,
  request: unknown,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void,
): Promise<Result> {
  type TaskEvent = Progress | { readonly event: "done"; readonly result: Result } | ErrorEvent;
  for await (const event of events<TaskEvent>(url, request, signal)) {
    if (event.event === "done") return event.result;
    if (event.event === "error") throw new ApiError(event.error.code, event.error.message, 0);
    onProgress(event);
  }
  throw new ApiError("no-answer", NO_RESPONSE, 0);
}

const runUrl = (run: string, path: string) => `/api/runs/${encodeURIComponent(run)}/${path}`;

/** Baseline and steered generation, token by token. The last event is `done` or `error`. */
export const streamSteering = (run: string, request: SteeringRequest, signal: AbortSignal) =>
  events<SteeringEvent>(runUrl(run, "steering"), request, signal);

/** One edit at several strengths. The last event is `done` or `error`. */
export const streamStrengthSweep = (run: string, request: StrengthSweepRequest, signal: AbortSignal) =>
  events<StrengthSweepEvent>(runUrl(run, "steering/sweep"), request, signal);

/** Price of some edits on unrelated text. The last event is `done` or `error`. */
export const streamPrice = (run: string, request: PriceRequest, signal: AbortSignal) =>
  events<PriceEvent>(runUrl(run, "steering/price"), request, signal);

/** Measurement of an expert's effects, which are stored at its end. The last event is `done` or `error`. */
export const streamAblation = (run: string, expert: number, signal: AbortSignal) =>
  events<AblationEvent>(runUrl(run, `experts/${expert}/ablation`), null, signal);

/** Contrast of two texts. The last event is `done` or `error`. */
export const streamContrast = (run: string, request: ContrastRequest, signal: AbortSignal) =>
  events<ContrastEvent>(runUrl(run, "contrast"), request, signal);

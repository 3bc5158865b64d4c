/** The typed HTTP client: paths, parameters and responses are checked against the server's OpenAPI schema. */

import createClient from "openapi-fetch";

import type { paths } from "@/api/schema";

import { noResponse, toApiError } from "./errors";

export const client = createClient<paths>({ baseUrl: location.origin });

interface ApiResult<T> {
  readonly data?: T | undefined;
  readonly error?: unknown;
  readonly response: Response;
}

/** Return the data of a response or throw an ApiError. Aborted calls keep their own error. */
export async function unwrap<T>(call: Promise<ApiResult<T>>): Promise<T> {
  const result = await call.catch((error: unknown) => {
    if (error instanceof TypeError) throw noResponse();
    throw error;
  });
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

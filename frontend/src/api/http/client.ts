/** The typed HTTP client: paths, parameters and responses are checked against the server's OpenAPI schema. */

import createClient from "openapi-fetch";

import type { paths } from "@/api/schema";

import { noResponse, toApiError } from "./errors";

export const client = createClient<paths>({ baseUrl: window.location.origin });

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

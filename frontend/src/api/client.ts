/** The typed client. Paths, parameters and answers are checked against the server's OpenAPI. */

import createClient from "openapi-fetch";

import { noAnswer, toApiError } from "./errors";
import type { paths } from "./schema";

export const client = createClient<paths>({ baseUrl: window.location.origin });

interface Answer<T> {
  readonly data?: T | undefined;
  readonly error?: unknown;
  readonly response: Response;
}

/** The data of an answer, or an ApiError thrown. Aborted calls keep their own error. */
export async function unwrap<T>(call: Promise<Answer<T>>): Promise<T> {
  const answer = await call.catch((error: unknown) => {
    if (error instanceof TypeError) throw noAnswer();
    throw error;
  });
  if (!answer.response.ok) throw toApiError(answer.error, answer.response);
  return answer.data as T;
}

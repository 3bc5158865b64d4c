/** The server's error format as an exception. */

import { rememberPrompt } from "@/lib/browser/last-prompt";

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

export const noResponse = () => new ApiError("no-answer", NO_RESPONSE, 0);

/** A message for any failure. Messages of unexpected exceptions are not meant for users and are replaced. */
export function messageOf(error: unknown): string {
  return error instanceof ApiError ? error.message : "Something went wrong on this page. Reload to try again.";
}

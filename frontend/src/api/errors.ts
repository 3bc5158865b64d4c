/** The one shape of every error, as an exception that says what to do. */

export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly code: string,
    message: string,
    /** HTTP status; 0 where no answer came. */
    readonly status: number,
    /** Seconds after which the server asks to be asked again; null where it does not. */
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
  const said = headers.get("Retry-After");
  const retryAfter = said === null || !/^\d+$/.test(said) ? null : Number(said);
  if (isErrorShape(body)) return new ApiError(body.error.code, body.error.message, status, retryAfter);
  const message = `The server answered with status ${status}, and without a reason.`;
  return new ApiError("unreadable-answer", message, status, retryAfter);
}

export function noAnswer(): ApiError {
  return new ApiError("no-answer", "The server does not answer. Is mxd serve still running?", 0);
}

/** A sentence for any failure; only what was written for people gets through. */
export function messageOf(error: unknown): string {
  return error instanceof ApiError ? error.message : "Something went wrong in this page. Reload it to try again.";
}

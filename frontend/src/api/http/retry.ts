/** React Query's retry policy: retry network errors, and errors with a short Retry-After. */

import { ApiError } from "./errors";

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

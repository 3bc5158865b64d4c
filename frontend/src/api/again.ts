/** What is asked again by itself: a question without an answer, and one that the server was too busy for. */

import { ApiError } from "./errors";

/** So many times. */
const TIMES = 2;
/** Who is to come back later than this is told so, and does not stand waiting. */
const LONGEST_SECONDS = 10;

/** What the server refused stays refused, unless it says that it will not be for long. */
export function retry(count: number, error: Error): boolean {
  if (count >= TIMES) return false;
  if (!(error instanceof ApiError) || error.status === 0) return true;
  return error.retryAfter !== null && error.retryAfter <= LONGEST_SECONDS;
}

/** Milliseconds until then: as the server says, and not everybody at once. */
export function retryDelay(count: number, error: Error): number {
  const seconds = error instanceof ApiError ? error.retryAfter : null;
  return seconds === null ? 1000 * 2 ** count : 1000 * seconds * (1 + Math.random() / 2);
}

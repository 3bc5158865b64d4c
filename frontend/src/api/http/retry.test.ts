import { describe, expect, it } from "vitest";

import { noResponse, toApiError } from "./errors";
import { retry, retryDelay } from "./retry";

function refusal(status: number, retryAfter?: string) {
  const headers = retryAfter === undefined ? {} : { "Retry-After": retryAfter };
  return toApiError({ error: { code: "busy", message: "Busy." } }, new Response(null, { status, headers }));
}

describe("retrying requests", () => {
  it("waits for Retry-After plus at most half of it", () => {
    const busy = refusal(503, "5");
    expect(retry(0, busy)).toBe(true);
    expect(retryDelay(0, busy)).toBeGreaterThanOrEqual(5000);
    expect(retryDelay(1, busy)).toBeLessThanOrEqual(7500);
  });

  it("does not retry final errors", () => {
    expect(retry(0, refusal(404))).toBe(false);
    expect(retry(0, refusal(503))).toBe(false);
    expect(retry(0, refusal(429, "3600"))).toBe(false);
    expect(retry(0, refusal(503, "Wed, 21 Oct 2026 07:28:00 GMT"))).toBe(false);
  });

  it("retries network errors twice", () => {
    expect([0, 1, 2].map((count) => retry(count, noResponse()))).toEqual([true, true, false]);
    expect(retry(2, refusal(503, "1"))).toBe(false);
    expect(retryDelay(1, noResponse())).toBe(2000);
  });
});

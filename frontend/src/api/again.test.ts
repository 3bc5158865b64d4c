import { describe, expect, it } from "vitest";

import { retry, retryDelay } from "./again";
import { noAnswer, toApiError } from "./errors";

function refusal(status: number, retryAfter?: string) {
  const headers = retryAfter === undefined ? {} : { "Retry-After": retryAfter };
  return toApiError({ error: { code: "busy", message: "Busy." } }, new Response(null, { status, headers }));
}

describe("asking again", () => {
  it("waits as long as a busy server says, and at most half as long again", () => {
    const busy = refusal(503, "5");
    expect(retry(0, busy)).toBe(true);
    expect(retryDelay(0, busy)).toBeGreaterThanOrEqual(5000);
    expect(retryDelay(1, busy)).toBeLessThanOrEqual(7500);
  });

  it("takes a refusal for what it is", () => {
    expect(retry(0, refusal(404))).toBe(false);
    expect(retry(0, refusal(503))).toBe(false);
    expect(retry(0, refusal(429, "3600"))).toBe(false);
    expect(retry(0, refusal(503, "Wed, 21 Oct 2026 07:28:00 GMT"))).toBe(false);
  });

  it("asks twice more where no answer comes, and then no more", () => {
    expect([0, 1, 2].map((count) => retry(count, noAnswer()))).toEqual([true, true, false]);
    expect(retry(2, refusal(503, "1"))).toBe(false);
    expect(retryDelay(1, noAnswer())).toBe(2000);
  });
});

import { describe, expect, it, vi } from "vitest";

import { lastPrompt, rememberPrompt } from "@/lib/browser/stores";

import { ApiError, readEvents, retry, retryDelay, toApiError } from "./http";

it("a prompt that is too long is forgotten, and no other error forgets one", () => {
  vi.stubGlobal("sessionStorage", { setItem: () => undefined });
  rememberPrompt("word ".repeat(2000));
  const refuse = (code: string) => toApiError({ error: { code, message: "No." } }, new Response(null, { status: 413 }));
  refuse("busy");
  expect(lastPrompt()).not.toBe("");
  refuse("prompt-too-long");
  expect(lastPrompt()).toBe("");
});

const NO_ANSWER = new ApiError("no-answer", "", 0);

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
    expect([0, 1, 2].map((count) => retry(count, NO_ANSWER))).toEqual([true, true, false]);
    expect(retry(2, refusal(503, "1"))).toBe(false);
    expect(retryDelay(1, NO_ANSWER)).toBe(2000);
  });
});

function parse(...chunks: string[]): readonly string[] {
  let rest = "";
  return chunks.flatMap((chunk) => {
    const read = readEvents(rest + chunk);
    rest = read.rest;
    return read.data;
  });
}

describe("server-sent events", () => {
  it("are read with and without a name", () => {
    expect(parse('event: metric\ndata: {"step":1}\n\ndata: x\n\n')).toEqual(['{"step":1}', "x"]);
  });

  it("are independent of chunk boundaries", () => {
    const text = ": hello\r\nevent: a\r\ndata: 1\r\ndata: 2\r\n\r\ndata: ü 😀\n\n";
    const whole = parse(text);
    expect(whole).toEqual(["1\n2", "ü 😀"]);
    for (let cut = 0; cut <= text.length; cut++) expect(parse(text.slice(0, cut), text.slice(cut))).toEqual(whole);
  });

  it("are kept until they are complete, and dropped without data", () => {
    expect(parse("data: half\n")).toEqual([]);
    expect(parse("event: ping\n\ndata: x\n\n")).toEqual(["x"]);
  });
});

import { expect, it, vi } from "vitest";

import { lastPrompt, rememberPrompt } from "@/lib/browser/last-prompt";

import { toApiError } from "./errors";

it("a prompt that is too long is forgotten, and no other error forgets one", () => {
  vi.stubGlobal("sessionStorage", { setItem: () => undefined });
  rememberPrompt("word ".repeat(2000));
  const refuse = (code: string) => toApiError({ error: { code, message: "No." } }, new Response(null, { status: 413 }));
  refuse("busy");
  expect(lastPrompt()).not.toBe("");
  refuse("prompt-too-long");
  expect(lastPrompt()).toBe("");
});

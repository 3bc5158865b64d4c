import { expect, test } from "vitest";

import type { AutomaticLabel } from "@/api/types";

import { trustOf } from "./expert-name";

const automatic = (label: string, f1: number | null, isClear = true) =>
  ({ label, f1, is_clear: isClear }) as unknown as AutomaticLabel;

test.each([
  ["mine", automatic("“n”", 0.9), 1],
  [null, automatic("“doctor” or “nurse”", 0.6), 0.6],
  [null, automatic("“doctor”", 0.05, false), 0],
  [null, automatic("“N” or “n”", 0.6), 0],
  [null, automatic("“raph” or “nostalg”", 0.6), 0],
  [null, automatic("“I” or “The”", 0.4), 0.4],
  [null, null, 0],
])("the label %s, or %o, is trusted by %s", (label, found, trust) => {
  expect(trustOf({ label, automatic: found, top_tokens: ["raph", " nostalg", "The"] })).toBe(trust);
});

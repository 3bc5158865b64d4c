import { expect, test } from "vitest";

import type { AutomaticLabel } from "@/api/types";

import { expertName, trustOf } from "./expert-name";

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

test.each([
  [automatic("English", 0.9, false), "“raph”"],
  [automatic("English: “was”", 0.1, false), "English: “was”"],
  [automatic("Capitalised words", 0.9), "Capitalised words"],
  [null, "“raph”"],
])("a weak label without words gives way to a token: %o is shown as %s", (found, name) => {
  expect(expertName({ label: null, automatic: found, top_tokens: ["raph"] })).toBe(name);
  expect(expertName({ label: "mine", automatic: found, top_tokens: ["raph"] })).toBe("mine");
});

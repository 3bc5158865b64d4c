import { expect, test } from "vitest";

import type { TokenConfidence } from "@/api/types";

import { passageSummary, passageText } from "./passage-summary";

const stage = (probability: number, largest: number) => ({
  probability,
  entropy: 0.5,
  likely: "a",
  likely_probability: largest,
});

const token = (text: string, before: number, after: number): TokenConfidence => ({
  text,
  before: stage(before, 0.9),
  after: stage(after, 0.3),
});

const TOKENS = [token("The", 0.1, 0.1), token(" end", 0.8, 0.2), token(".", 0.4, 0)];

test("means leave out the predictions that are not protected", () => {
  const found = passageSummary(TOKENS, 1, "true-token");
  expect(found?.predictions).toBe(2);
  expect(found?.before).toBeCloseTo(0.6);
  expect(found?.after).toBeCloseTo(0.1);
  expect(passageSummary(TOKENS, 1, "entropy")?.after).toBeCloseTo(0.5);
});

test("a passage without scored predictions has no means", () => {
  expect(passageSummary(TOKENS, 3, "entropy")).toBeNull();
});

test("the text of a passage is that of its tokens", () => {
  expect(passageText(TOKENS)).toBe("The end.");
});

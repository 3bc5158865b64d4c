import { describe, expect, it } from "vitest";

import type { EvaluationSummary } from "@/api/types";

import { evaluationsOnOtherTexts } from "./evaluations-by-text";

const on = (text: string, tokens: number): EvaluationSummary => ({
  run: "run",
  text,
  tokens,
  sequences: 1,
  created_at: "2026-11-22T00:00:00Z",
  seen_text: false,
  metrics: [],
  warnings: [],
});

describe("onOtherTexts", () => {
  it("keeps the newest of each text but the first", () => {
    const found = evaluationsOnOtherTexts([on("a", 1), on("b", 2), on("a", 3), on("b", 4), on("c", 5)]);
    expect(found.map(({ text, tokens }) => [text, tokens])).toEqual([
      ["b", 2],
      ["c", 5],
    ]);
    expect(evaluationsOnOtherTexts([])).toEqual([]);
  });
});

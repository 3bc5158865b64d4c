import { describe, expect, it } from "vitest";

import type { TokenEvent } from "@/api/types";

import { reduceEvent, type Generation } from "./use-generation";

const EMPTY: Generation = { status: "waiting", baseline: [], steered: [], error: null };

function token(variant: "baseline" | "steered", text: string): TokenEvent {
  return {
    event: "token",
    variant: variant,
    sample: 0,
    position: 0,
    id: 1,
    text,
    probability: 0.5,
    delta_log_probability: 0,
    kl: 0,
    alternatives: [],
    other_alternatives: [],
    experts: [],
    reason: null,
  };
}

describe("a generation", () => {
  it("starts empty and collects the tokens of both variants", () => {
    const started = reduceEvent(
      { ...EMPTY, baseline: [token("baseline", "old")] },
      {
        event: "start",
        prompt_tokens: 3,
        max_tokens: 8,
      },
    );
    const state = reduceEvent(reduceEvent(started, token("baseline", "a")), token("steered", "b"));
    expect(state.status).toBe("streaming");
    expect(state.baseline.map((each) => each.text)).toEqual(["a"]);
    expect(state.steered.map((each) => each.text)).toEqual(["b"]);
  });

  it("keeps its text after an error", () => {
    const state = reduceEvent(reduceEvent(EMPTY, token("steered", "b")), {
      event: "error",
      error: { code: "busy", message: "Try again.", detail: {} },
    });
    expect(state.status).toBe("error");
    expect(state.steered).toHaveLength(1);
  });
});

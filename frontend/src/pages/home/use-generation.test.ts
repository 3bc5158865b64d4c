import { describe, expect, it } from "vitest";

import type { TokenEvent } from "@/api/types";

import { afterEvent, type Generation } from "./use-generation";

const EMPTY: Generation = { status: "waiting", default: [], steered: [], error: null };

function token(arm: "default" | "steered", text: string): TokenEvent {
  return {
    event: "token",
    arm,
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
  };
}

describe("a generation", () => {
  it("begins empty and gathers the tokens of each arm", () => {
    const started = afterEvent(
      { ...EMPTY, default: [token("default", "old")] },
      {
        event: "start",
        prompt_tokens: 3,
        max_tokens: 8,
      },
    );
    const state = afterEvent(afterEvent(started, token("default", "a")), token("steered", "b"));
    expect(state.status).toBe("streaming");
    expect(state.default.map((each) => each.text)).toEqual(["a"]);
    expect(state.steered.map((each) => each.text)).toEqual(["b"]);
  });

  it("keeps its text beside an error", () => {
    const state = afterEvent(afterEvent(EMPTY, token("steered", "b")), {
      event: "error",
      error: { code: "busy", message: "Try again.", detail: {} },
    });
    expect(state.status).toBe("error");
    expect(state.steered).toHaveLength(1);
  });
});

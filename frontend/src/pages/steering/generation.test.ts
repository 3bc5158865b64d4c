import { describe, expect, it } from "vitest";

import type { Arm, DoneEvent, StartEvent, TokenEvent } from "@/api/types";

import {
  afterEvents,
  armInWords,
  asked,
  ended,
  failed,
  isGrowing,
  isRunning,
  meanKl,
  NO_GENERATION,
  stopped,
  textOf,
} from "./generation";

function token(arm: Arm, position: number, text: string, more: Partial<TokenEvent> = {}): TokenEvent {
  return {
    event: "token",
    arm,
    sample: 0,
    position,
    id: position,
    text,
    probability: 0.5,
    delta_log_probability: 1.5,
    kl: 0.25,
    alternatives: [],
    other_alternatives: [],
    experts: [],
    ...more,
  };
}

const START: StartEvent = { event: "start", prompt_tokens: 4, max_tokens: 8 };
const DONE: DoneEvent = {
  event: "done",
  default_reason: "end-of-text",
  steered_reason: "length",
  tokens: 3,
  seconds: 1,
};

describe("a generation", () => {
  it("gathers the tokens of each arm with their shade", () => {
    const state = afterEvents(
      asked(NO_GENERATION),
      [START, token("default", 0, " It"), token("steered", 0, " They"), token("steered", 1, " may", { kl: 0.75 })],
      100,
    );
    expect(state.status).toBe("streaming");
    expect(textOf(state.default.continuations[0])).toBe(" It");
    expect(textOf(state.steered.continuations[0])).toBe(" They may");
    expect(state.steered.continuations[0]?.pieces[1]).toEqual({ index: 1, id: 1, text: " may", value: 1.5 });
    expect(meanKl(state.steered)).toBe(0.5);
    expect(meanKl(NO_GENERATION.steered)).toBeNull();
  });

  it("leaves the array of an arm alone that has nothing new", () => {
    const one = afterEvents(asked(NO_GENERATION), [START, token("default", 0, "a")], 1);
    const two = afterEvents(one, [token("steered", 0, "b")], 2);
    expect(two.default).toBe(one.default);
  });

  it("keeps several continuations apart", () => {
    const events = [token("steered", 0, "b", { sample: 1 }), token("steered", 0, "a"), token("steered", 1, "a")];
    const state = afterEvents(asked(NO_GENERATION), events, 1);
    expect(state.steered.continuations.map(textOf)).toEqual(["aa", "b"]);
  });

  it("shows the old text until the first new token", () => {
    const old = afterEvents(asked(NO_GENERATION), [START, token("default", 0, "old"), DONE], 1);
    const waiting = asked(old);
    expect(waiting).toMatchObject({ status: "waiting", isOutdated: true, done: null });
    expect(textOf(waiting.default.continuations[0])).toBe("old");
    const started = afterEvents(waiting, [START], 2);
    expect(textOf(started.default.continuations[0])).toBe("old");
    const fresh = afterEvents(started, [token("default", 0, "new")], 3);
    expect(fresh.isOutdated).toBe(false);
    expect(textOf(fresh.default.continuations[0])).toBe("new");
  });

  it("keeps the text beside a failure and after a stop", () => {
    const some = afterEvents(asked(NO_GENERATION), [START, token("steered", 0, "so far")], 1);
    const broken = failed(some, "The language model ran out of memory.");
    expect(broken).toMatchObject({ status: "failed", failure: "The language model ran out of memory." });
    expect(textOf(broken.steered.continuations[0])).toBe("so far");
    const event = { event: "error", error: { code: "x", message: "No.", detail: {} } } as const;
    expect(afterEvents(some, [event], 2).failure).toBe("No.");
    expect(stopped(some).status).toBe("stopped");
    expect(stopped(broken).status).toBe("failed");
    expect(isRunning(stopped(some))).toBe(false);
    expect(ended(some)).toMatchObject({ status: "failed", steered: some.steered });
    expect(ended(stopped(some)).status).toBe("stopped");
  });
});

describe("a text", () => {
  it("grows until it falls behind the other arm's", () => {
    const both = afterEvents(asked(NO_GENERATION), [START, token("default", 0, "a"), token("steered", 0, "a")], 1);
    expect(isGrowing(both, "default", 0)).toBe(true);
    const behind = afterEvents(both, [token("steered", 1, "b"), token("steered", 2, "c")], 2);
    expect([isGrowing(behind, "default", 0), isGrowing(behind, "steered", 0)]).toEqual([false, true]);
    expect(isGrowing(stopped(behind), "steered", 0)).toBe(false);
  });
});

describe("how an arm stands", () => {
  it("says the place in the queue", () => {
    const waiting = asked(NO_GENERATION);
    expect(armInWords(waiting, "default")).toBe("reading the prompt");
    expect(armInWords(afterEvents(waiting, [{ event: "progress", before: 0 }], 1), "default")).toBe("next in line");
    expect(armInWords(afterEvents(waiting, [{ event: "progress", before: 1 }], 1), "default")).toBe(
      "1 request comes first",
    );
  });

  it("counts tokens and their rate, then says why it ended", () => {
    const one = afterEvents(asked(NO_GENERATION), [START, token("steered", 0, "a")], 1000);
    expect(armInWords(one, "steered")).toBe("1 of 8 tokens");
    const two = afterEvents(one, [token("steered", 1, "b")], 1050);
    expect(armInWords(two, "steered")).toBe("2 of 8 tokens, 20 tokens/s");
    expect(armInWords(stopped(two), "steered")).toBe("stopped after 2 tokens");
    expect(armInWords(failed(two, "No."), "default")).toBe("broken off after 0 tokens");
    expect(armInWords(afterEvents(two, [DONE], 1100), "steered")).toBe("done, 2 tokens");
    expect(armInWords(afterEvents(two, [DONE], 1100), "default")).toBe("done, 0 tokens, end of text");
    expect(armInWords(NO_GENERATION, "default")).toBe("");
  });
});

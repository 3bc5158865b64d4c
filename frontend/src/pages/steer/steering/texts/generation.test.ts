import { describe, expect, it } from "vitest";

import type { Variant, DoneEvent, StartEvent, TokenEvent, Turn } from "@/api/types";

import {
  asReplies,
  bothReplies,
  changedWords,
  continuationText,
  describeProgress,
  earlyEnd,
  ended,
  expectedCharacters,
  failed,
  isGrowing,
  isRunning,
  meanKl,
  NO_GENERATION,
  reduceEvents,
  remainder,
  requested,
  shownTexts,
  stopped,
  storedGeneration,
} from "./generation";

function token(variant: Variant, position: number, text: string, more: Partial<TokenEvent> = {}): TokenEvent {
  return {
    event: "token",
    variant: variant,
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
    reason: null,
    ...more,
  };
}

const START: StartEvent = { event: "start", prompt_tokens: 4, max_tokens: 8 };
const DONE: DoneEvent = {
  event: "done",
  baseline_reason: "end-of-text",
  steered_reason: "length",
  tokens: 3,
  figures: null,
  seconds: 1,
};

describe("a generation", () => {
  it("collects the tokens of each variant with their shade", () => {
    const state = reduceEvents(
      requested(NO_GENERATION),
      [START, token("baseline", 0, " It"), token("steered", 0, " They"), token("steered", 1, " may", { kl: 0.75 })],
      100,
    );
    expect(state.status).toBe("streaming");
    expect(continuationText(state.baseline.continuations[0])).toBe(" It");
    expect(continuationText(state.steered.continuations[0])).toBe(" They may");
    expect(state.steered.continuations[0]?.pieces[1]).toEqual({ index: 1, id: 1, text: " may", value: 1.5 });
    expect(meanKl(state.steered)).toBe(0.5);
    expect(meanKl(NO_GENERATION.steered)).toBeNull();
  });

  it("tells the words and signs that the edits raised or lowered most, and how often", () => {
    const words = [
      [" boy", 2],
      [" gre", 9],
      ["w", 9],
      [" Child", 3],
      ["%", 5],
      [" child", 1],
      [" saw", 0.5],
      [" say", 1.4],
      [" war", -2],
    ] as const;
    const tokens = words.map(([text, value], i) => token("steered", i, text, { delta_log_probability: value }));
    const { steered } = reduceEvents(NO_GENERATION, tokens, 1);
    const found = [changedWords(steered, 1), changedWords(steered, -1)];
    expect(found).toEqual([["“child” × 2", "“%”", "“boy”"], ["“war”"]]);
    const other = reduceEvents(NO_GENERATION, [token("baseline", 0, " %"), token("baseline", 1, " boy")], 1).baseline;
    expect(changedWords(steered, 1, other)).toEqual(["“child” × 2"]); // words of any text are none
  });

  it("does not copy a variant without new tokens", () => {
    const one = reduceEvents(requested(NO_GENERATION), [START, token("baseline", 0, "a")], 1);
    const two = reduceEvents(one, [token("steered", 0, "b")], 2);
    expect(two.baseline).toBe(one.baseline);
  });

  it("separates several samples", () => {
    const events = [token("steered", 0, "b", { sample: 1 }), token("steered", 0, "a"), token("steered", 1, "a")];
    const state = reduceEvents(requested(NO_GENERATION), events, 1);
    expect(state.steered.continuations.map(continuationText)).toEqual(["aa", "b"]);
  });

  it("shows the old text until new tokens take its place", () => {
    const two = [token("baseline", 0, "old"), token("baseline", 1, " text")];
    const old = reduceEvents(requested(NO_GENERATION), [START, ...two, DONE], 1);
    const waiting = requested(old);
    expect(waiting).toMatchObject({ status: "waiting", isOutdated: true, done: null });
    expect(continuationText(waiting.baseline.continuations[0])).toBe("old text");
    expect(expectedCharacters(waiting, "", 64)).toBe("old text".length);
    const started = reduceEvents(waiting, [START], 2);
    expect(continuationText(started.baseline.continuations[0])).toBe("old text");
    const fresh = reduceEvents(started, [token("baseline", 0, "new")], 3);
    expect(fresh.isOutdated).toBe(false);
    expect(continuationText(fresh.baseline.continuations[0])).toBe("new");
    expect(remainder(fresh, "baseline", 0)).toBe(" text");
    expect(remainder(stopped(fresh), "baseline", 0)).toBe("");
  });

  it("keeps the text after a failure or stop", () => {
    const some = reduceEvents(requested(NO_GENERATION), [START, token("steered", 0, "so far")], 1);
    const broken = failed(some, "The language model ran out of memory.");
    expect(broken).toMatchObject({ status: "failed", failure: "The language model ran out of memory." });
    expect(continuationText(broken.steered.continuations[0])).toBe("so far");
    const event = { event: "error", error: { code: "x", message: "No.", detail: {} } } as const;
    expect(reduceEvents(some, [event], 2).failure).toBe("No.");
    expect(stopped(some).status).toBe("stopped");
    expect(stopped(broken).status).toBe("failed");
    expect(isRunning(stopped(some))).toBe(false);
    expect(ended(some)).toMatchObject({ status: "failed", steered: some.steered });
    expect(ended(stopped(some)).status).toBe("stopped");
  });
});

describe("the texts of a session", () => {
  it("is shown beside the baseline without being generated, and can be shared again", () => {
    const shown = (text: string) => [[{ id: 4, text, delta_log_probability: 1.5 }]];
    const kept = {
      original_turns: [],
      baseline: shown(" It was"),
      steered: shown(" It may"),
      kl_nats: 0.5,
      figures: null,
    };
    const stored = storedGeneration(kept);
    expect(isRunning(stored)).toBe(false);
    expect(stored.steered.continuations[0]?.pieces).toEqual([{ index: 0, id: 4, text: " It may", value: 1.5 }]);
    expect(meanKl(stored.steered)).toBe(0.5);
    expect(describeProgress(stored, "baseline")).toBe("");
    expect(bothReplies(stored)).toEqual({ steered: "It may", original: "It was" });
    const control = { edits: [], generation: storedGeneration({ ...kept, baseline: [] }) };
    expect(shownTexts(stored, null, control)).toEqual({
      ...{ ...kept, control: kept.steered },
      ...{ control_edits: [], control_figures: null },
    });
  });

  it("is shared without its end-of-text token", () => {
    const end = token("steered", 1, "<|im_end|>", { reason: "end-of-text" });
    const done = reduceEvents(requested(NO_GENERATION), [token("steered", 0, " It"), end], 1);
    const original: Turn[] = [{ role: "user", text: "So" }];
    expect(shownTexts(done, original)).toMatchObject({
      steered: [[{ text: " It" }]],
      original_turns: original,
    });
  });
});

describe("a text", () => {
  it("grows until it falls behind the other variant", () => {
    const both = reduceEvents(
      requested(NO_GENERATION),
      [START, token("baseline", 0, "a"), token("steered", 0, "a")],
      1,
    );
    expect(isGrowing(both, "baseline", 0)).toBe(true);
    const behind = reduceEvents(both, [token("steered", 1, "b"), token("steered", 2, "c")], 2);
    expect([isGrowing(behind, "baseline", 0), isGrowing(behind, "steered", 0)]).toEqual([false, true]);
    expect(isGrowing(stopped(behind), "steered", 0)).toBe(false);
  });
});

describe("progress of a variant", () => {
  it("shows the position in the queue", () => {
    const waiting = requested(NO_GENERATION);
    expect(describeProgress(waiting, "baseline")).toBe("reading the prompt");
    expect(describeProgress(reduceEvents(waiting, [{ event: "progress", queue_position: 0 }], 1), "baseline")).toBe(
      "next in the queue",
    );
    expect(describeProgress(reduceEvents(waiting, [{ event: "progress", queue_position: 1 }], 1), "baseline")).toBe(
      "1 request ahead",
    );
  });

  it("counts tokens and their rate, then the reason for the end", () => {
    const one = reduceEvents(requested(NO_GENERATION), [START, token("steered", 0, "a")], 1000);
    expect(describeProgress(one, "steered")).toBe("1 of 8 tokens");
    const two = reduceEvents(one, [token("steered", 1, "b")], 1050);
    expect(describeProgress(two, "steered")).toBe("2 of 8 tokens, 20 tokens/s");
    expect(describeProgress(stopped(two), "steered")).toBe("stopped after 2 tokens");
    expect(describeProgress(failed(two, "No."), "baseline")).toBe("interrupted after 0 tokens");
    expect(describeProgress(reduceEvents(two, [DONE], 1100), "steered")).toBe("done, 2 tokens");
    expect(describeProgress(reduceEvents(two, [DONE], 1100), "baseline")).toBe("done, 0 tokens, end of text");
    expect(describeProgress(NO_GENERATION, "baseline")).toBe("");
  });
});

describe("the room for a text", () => {
  const streaming = reduceEvents(requested(NO_GENERATION), [START, token("steered", 0, " one")], 0);
  const prompt = "A prompt";

  it("is that of the whole text from the start, so that what follows stays in place", () => {
    const whole = expectedCharacters(requested(NO_GENERATION), prompt, 100);
    expect(whole).toBeGreaterThan(400);
    expect(expectedCharacters(streaming, prompt, 100)).toBe(whole);
  });

  it("is given back once the text has ended", () => {
    const ended = reduceEvents(streaming, [DONE], 0);
    expect(expectedCharacters(ended, prompt, 100)).toBe(prompt.length + " one".length);
    expect(expectedCharacters(stopped(streaming), prompt, 100)).toBe(prompt.length + " one".length);
  });

  it("gives the finished texts as replies, without its end-of-text token", () => {
    const tokens = [token("steered", 0, " Use"), token("steered", 1, " leaves."), token("baseline", 0, " Boil")];
    const end = token("steered", 2, "<|im_end|>", { reason: "end-of-text" });
    const running = reduceEvents(requested(NO_GENERATION), [START, ...tokens, end], 0);
    expect(bothReplies(running)).toBeUndefined();
    const finished = reduceEvents(running, [DONE], 1);
    expect(bothReplies(finished)).toEqual({ steered: "Use leaves.", original: "Boil" });
    expect(bothReplies(requested(finished))).toBeUndefined();
    expect(asReplies(finished).steered.continuations[0]?.tokens.map(({ text }) => text)).toEqual([" Use", " leaves."]);
  });

  it("leaves out a reply's last sentence if the limit of tokens has cut it", () => {
    const tokens = [token("steered", 0, " Use"), token("steered", 1, " leaves."), token("steered", 2, " Then wait")];
    const finished = reduceEvents(requested(NO_GENERATION), [START, ...tokens, token("baseline", 0, " Boil"), DONE], 0);
    expect(bothReplies(asReplies(finished))).toEqual({ steered: "Use leaves.", original: "Boil" });
  });

  it.each([
    ["1. Boil it.\n2. Wait.\n3.", "1. Boil it.\n2. Wait."],
    ["1. Boil it\n2. Wait\n3. Pour", "1. Boil it\n2. Wait"],
    ["It has 3. Then", "It has 3."],
    ["Two steps:\n\n1. Boil", "Two steps:\n\n1. Boil"],
  ])("is not cut inside an item of a list: %j", (text, whole) => {
    const tokens = text.split(/(?<=\s)/).map((piece, i) => token("steered", i, piece));
    const done = { ...DONE, steered_reason: "length" } as const;
    const finished = reduceEvents(requested(NO_GENERATION), [START, ...tokens, token("baseline", 0, " So"), done], 0);
    expect(bothReplies(asReplies(finished))?.steered).toBe(whole);
  });
});

it("a steered text of less than half of the baseline's tokens ended early", () => {
  const texts = (own: number, other: number) =>
    reduceEvents(
      requested(NO_GENERATION),
      [
        START,
        ...Array.from({ length: own }, (_, i) => token("steered", i, " a")),
        ...Array.from({ length: other }, (_, i) => token("baseline", i, " a")),
        DONE,
      ],
      1,
    );
  expect(earlyEnd(texts(3, 8))).toBe("; the steered text ended early, after 3 tokens beside 8");
  expect(earlyEnd(texts(4, 8))).toBe("");
  expect(earlyEnd({ ...texts(3, 8), status: "streaming" })).toBe("");
});

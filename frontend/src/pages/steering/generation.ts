/** A generation as it grows: both arms, each with its continuations, out of the events of one stream. */

import type { Arm, DoneEvent, SteeringEvent, TokenEvent } from "@/api/types";
import type { Piece } from "@/lib/kwic";

export interface Continuation {
  readonly tokens: readonly TokenEvent[];
  /** The same tokens as they are drawn; the value is Δ log p. */
  readonly pieces: readonly Piece[];
}

export interface ArmText {
  readonly continuations: readonly Continuation[];
  /** Times of the first and the latest token, in milliseconds. */
  readonly firstAt: number | null;
  readonly lastAt: number | null;
}

export type GenerationStatus = "idle" | "waiting" | "streaming" | "done" | "stopped" | "failed";

export interface Generation extends Readonly<Record<Arm, ArmText>> {
  readonly status: GenerationStatus;
  /** The texts are those of the request before; they give way to the first new token. */
  readonly isOutdated: boolean;
  /** Requests that the server takes first; null while it has room. */
  readonly before: number | null;
  readonly maxTokens: number;
  readonly done: DoneEvent | null;
  readonly failure: string | null;
}

const NO_TEXT: ArmText = { continuations: [], firstAt: null, lastAt: null };

export const NO_GENERATION: Generation = {
  status: "idle",
  isOutdated: false,
  before: null,
  maxTokens: 0,
  done: null,
  failure: null,
  default: NO_TEXT,
  steered: NO_TEXT,
};

const EMPTY: Continuation = { tokens: [], pieces: [] };

function withTokens(text: ArmText, tokens: readonly TokenEvent[], at: number): ArmText {
  if (tokens.length === 0) return text;
  const grown = new Map<number, { tokens: TokenEvent[]; pieces: Piece[] }>();
  for (const token of tokens) {
    const old = text.continuations[token.sample] ?? EMPTY;
    const own = grown.get(token.sample) ?? { tokens: [...old.tokens], pieces: [...old.pieces] };
    const { id, text: characters, delta_log_probability: value } = token;
    own.pieces.push({ index: own.pieces.length, id, text: characters, value });
    own.tokens.push(token);
    grown.set(token.sample, own);
  }
  const count = Math.max(text.continuations.length, ...[...grown.keys()].map((sample) => sample + 1));
  const continuations = Array.from({ length: count }, (_, i) => grown.get(i) ?? text.continuations[i] ?? EMPTY);
  return { continuations, firstAt: text.firstAt ?? at, lastAt: at };
}

/** A new request: what is there stays to be read until something takes its place. */
export function asked(state: Generation): Generation {
  return { ...NO_GENERATION, status: "waiting", isOutdated: true, default: state.default, steered: state.steered };
}

function withoutOutdated(state: Generation): Generation {
  return state.isOutdated ? { ...state, isOutdated: false, default: NO_TEXT, steered: NO_TEXT } : state;
}

function after(state: Generation, event: Exclude<SteeringEvent, TokenEvent>): Generation {
  switch (event.event) {
    case "progress":
      return { ...state, before: event.before };
    case "start":
      return { ...state, status: "streaming", before: null, maxTokens: event.max_tokens };
    case "done":
      return { ...withoutOutdated(state), status: "done", done: event };
    case "error":
      return failed(state, event.error.message);
  }
}

/** The generation after some more events, which came together at `at` (milliseconds). */
export function afterEvents(state: Generation, events: readonly SteeringEvent[], at: number): Generation {
  const tokens = events.filter((event) => event.event === "token");
  const others = events.filter((event) => event.event !== "token");
  const text = tokens.length === 0 ? state : withoutOutdated(state);
  const ofArm = (arm: Arm) =>
    withTokens(
      text[arm],
      tokens.filter((token) => token.arm === arm),
      at,
    );
  const grown: Generation = { ...text, default: ofArm("default"), steered: ofArm("steered") };
  return others.reduce(after, grown);
}

/** By hand: what is there is kept. */
export function stopped(state: Generation): Generation {
  return isRunning(state) ? { ...state, status: "stopped" } : state;
}

/** What is there is kept beside the reason. */
export function failed(state: Generation, failure: string): Generation {
  return { ...withoutOutdated(state), status: "failed", failure };
}

/** The stream is over: a text that was not done by then is broken off. */
export function ended(state: Generation): Generation {
  return isRunning(state) ? failed(state, "The server broke off before the texts were done; try again.") : state;
}

export function isRunning({ status }: Generation): boolean {
  return status === "waiting" || status === "streaming";
}

/** Whether a text still gets tokens: one that has ended falls behind the other arm's. */
export function isGrowing(state: Generation, arm: Arm, sample: number): boolean {
  const count = (which: Arm) => state[which].continuations[sample]?.tokens.length ?? 0;
  return isRunning(state) && !state.isOutdated && count(arm) + 1 >= Math.max(count("default"), count("steered"));
}

function tokensPerSecond({ continuations, firstAt, lastAt }: ArmText): number | null {
  const steps = continuations.reduce((longest, { tokens }) => Math.max(longest, tokens.length), 0) - 1;
  if (steps < 1 || firstAt === null || lastAt === null || lastAt <= firstAt) return null;
  return (1000 * steps) / (lastAt - firstAt);
}

const REASONS: Readonly<Record<DoneEvent["default_reason"], string>> = {
  length: "",
  stop: ", at a stop text",
  "end-of-text": ", end of text",
};

/** `58 of 64 tokens, 38 tokens/s`: how one arm stands. */
export function armInWords(state: Generation, arm: Arm): string {
  if (state.status === "idle") return "";
  if (state.status === "waiting") {
    if (state.before === null) return "reading the prompt";
    if (state.before === 0) return "next in line";
    return `${state.before} ${state.before === 1 ? "request comes" : "requests come"} first`;
  }
  const count = state[arm].continuations[0]?.tokens.length ?? 0;
  const tokens = `${count} ${count === 1 ? "token" : "tokens"}`;
  if (state.status === "stopped") return `stopped after ${tokens}`;
  if (state.status === "failed") return `broken off after ${tokens}`;
  if (state.done !== null) return `done, ${tokens}${REASONS[state.done[`${arm}_reason`]]}`;
  const rate = tokensPerSecond(state[arm]);
  return `${count} of ${state.maxTokens} tokens${rate === null ? "" : `, ${Math.round(rate)} tokens/s`}`;
}

/** Mean KL per token between the arms after the steered texts, in nats; null before there is one. */
export function meanKl({ continuations }: ArmText): number | null {
  const tokens = continuations.flatMap((continuation) => continuation.tokens);
  return tokens.length === 0 ? null : tokens.reduce((sum, token) => sum + token.kl, 0) / tokens.length;
}

export function textOf(continuation: Continuation | undefined): string {
  return continuation?.tokens.map((token) => token.text).join("") ?? "";
}

/** A generation: baseline and steered texts, updated from a stream of events. A new one cancels the one before. */

import { useCallback, useEffect, useRef, useState } from "react";

import { messageOf, streamSteering } from "@/api/http";
import type {
  DoneEvent,
  SessionResult,
  SteeringEvent,
  SteeringFigures,
  SteeringRequest,
  TokenEvent,
  Turn,
  Variant,
} from "@/api/types";
import { type Edit, toHttpEdit } from "@/lib/edits/edits";
import { formatFixed, formatPlural } from "@/lib/text/format";
import type { Piece } from "@/lib/text/kwic";

export interface Continuation {
  readonly tokens: readonly TokenEvent[];
  /** The tokens for display; the value is Δ log p. */
  readonly pieces: readonly Piece[];
}

export interface VariantText {
  readonly continuations: readonly Continuation[];
  /** Arrival times of the first and last token in milliseconds. */
  readonly firstAt: number | null;
  readonly lastAt: number | null;
  /** Texts of the request before. What is left of them is shown until new tokens take its place. */
  readonly previous?: readonly Continuation[];
  /** Mean KL divergence per token that was stored with the texts, in nats. */
  readonly storedKl?: number | null;
}

/** stored: the texts are those that were saved with a session, and nothing has been generated. */
type GenerationStatus = "idle" | "stored" | "waiting" | "streaming" | "done" | "stopped" | "failed";

export interface Generation extends Readonly<Record<Variant, VariantText>> {
  readonly status: GenerationStatus;
  /** The texts belong to the previous request, until the first new token arrives. */
  readonly isOutdated: boolean;
  /** Number of requests queued before this one; null once it runs. */
  readonly before: number | null;
  readonly maxTokens: number;
  readonly done: DoneEvent | null;
  /** Effect and fluency of the complete texts. */
  readonly figures: SteeringFigures | null;
  readonly failure: string | null;
}

/** The same edits of random experts, and the texts that they steer. */
export interface Control {
  readonly edits: readonly Edit[];
  readonly generation: Generation;
}

const NO_TEXT: VariantText = { continuations: [], firstAt: null, lastAt: null };

export const NO_GENERATION: Generation = {
  status: "idle",
  isOutdated: false,
  before: null,
  maxTokens: 0,
  done: null,
  figures: null,
  failure: null,
  baseline: NO_TEXT,
  steered: NO_TEXT,
};

/** The texts that a session keeps. */
export function storedGeneration({ baseline, steered, ...result }: SessionResult): Generation {
  const { kl_nats: storedKl = null, figures = null } = result;
  const stored = (samples: SessionResult["steered"]): VariantText => ({
    ...NO_TEXT,
    continuations: samples.map((tokens) => ({
      tokens: [],
      pieces: tokens.map(({ delta_log_probability: value, ...token }, index) => ({ ...token, index, value })),
    })),
    storedKl,
  });
  return { ...NO_GENERATION, status: "stored", figures, baseline: stored(baseline), steered: stored(steered) };
}

export const NO_TOKENS: Continuation = { tokens: [], pieces: [] };

/** The text of a variant with its tokens of some events. */
function withTokens(text: VariantText, variant: Variant, events: readonly TokenEvent[], at: number): VariantText {
  const tokens = events.filter((token) => token.variant === variant);
  if (tokens.length === 0) return text;
  const grown = new Map<number, { tokens: TokenEvent[]; pieces: Piece[] }>();
  for (const token of tokens) {
    const old = text.continuations[token.sample] ?? NO_TOKENS;
    const own = grown.get(token.sample) ?? { tokens: [...old.tokens], pieces: [...old.pieces] };
    const { id, text: characters, delta_log_probability: value } = token;
    own.pieces.push({ index: own.pieces.length, id, text: characters, value });
    own.tokens.push(token);
    grown.set(token.sample, own);
  }
  const count = Math.max(text.continuations.length, ...[...grown.keys()].map((sample) => sample + 1));
  const continuations = Array.from({ length: count }, (_, i) => grown.get(i) ?? text.continuations[i] ?? NO_TOKENS);
  return { ...text, continuations, firstAt: text.firstAt ?? at, lastAt: at };
}

/** State after a new request. The old texts stay visible until new tokens arrive. */
export function requested(state: Generation): Generation {
  return { ...NO_GENERATION, status: "waiting", isOutdated: true, baseline: state.baseline, steered: state.steered };
}

function withoutOutdated(state: Generation): Generation {
  if (!state.isOutdated) return state;
  const fresh = (variant: Variant) => ({ ...NO_TEXT, previous: state[variant].continuations });
  return { ...state, isOutdated: false, baseline: fresh("baseline"), steered: fresh("steered") };
}

/** What is left of a previous text while the new one is generated. */
export function remainder(state: Generation, variant: Variant, sample: number): string {
  const { continuations, previous } = state[variant];
  if (!isRunning(state) || state.isOutdated) return "";
  const pieces = previous?.[sample]?.pieces.slice(continuations[sample]?.pieces.length ?? 0) ?? [];
  return pieces.map(({ text }) => text).join("");
}

function reduceStatus(state: Generation, event: Exclude<SteeringEvent, TokenEvent>): Generation {
  switch (event.event) {
    case "progress":
      return { ...state, before: event.queue_position };
    case "start":
      return { ...state, status: "streaming", before: null, maxTokens: event.max_tokens };
    case "done":
      return { ...withoutOutdated(state), status: "done", done: event, figures: event.figures };
    case "error":
      return failed(state, event.error.message);
  }
}

/** State after a batch of events that arrived at `at` (milliseconds). */
export function reduceEvents(state: Generation, events: readonly SteeringEvent[], at: number): Generation {
  const tokens = events.filter((event) => event.event === "token");
  const others = events.filter((event) => event.event !== "token");
  const text = tokens.length === 0 ? state : withoutOutdated(state);
  const grow = (variant: Variant) => withTokens(text[variant], variant, tokens, at);
  const grown: Generation = { ...text, baseline: grow("baseline"), steered: grow("steered") };
  return others.reduce(reduceStatus, grown);
}

/** Stopped by the user; the texts so far are kept. */
export function stopped(state: Generation): Generation {
  return isRunning(state) ? { ...state, status: "stopped" } : state;
}

/** The texts so far are kept next to the error. */
export function failed(state: Generation, failure: string): Generation {
  return { ...withoutOutdated(state), status: "failed", failure };
}

/** End of the stream. An unfinished text counts as failed. */
export function ended(state: Generation): Generation {
  return isRunning(state) ? failed(state, "The connection ended before the texts were complete. Try again.") : state;
}

export function isRunning({ status }: Generation): boolean {
  return status === "waiting" || status === "streaming";
}

/** Whether a text is still being generated. A finished one falls behind the other variant's. */
export function isGrowing(state: Generation, variant: Variant, sample: number): boolean {
  const count = (other: Variant) => state[other].continuations[sample]?.tokens.length ?? 0;
  return isRunning(state) && !state.isOutdated && count(variant) + 1 >= Math.max(count("baseline"), count("steered"));
}

function tokensPerSecond({ continuations, firstAt, lastAt }: VariantText): number | null {
  const steps = continuations.reduce((longest, { tokens }) => Math.max(longest, tokens.length), 0) - 1;
  if (steps < 1 || firstAt === null || lastAt === null || lastAt <= firstAt) return null;
  return (1000 * steps) / (lastAt - firstAt);
}

const REASONS: Readonly<Record<DoneEvent["baseline_reason"], string>> = {
  length: "",
  stop: ", at a stop text",
  "end-of-text": ", end of text",
};

/** That the steered text ended before half of the other, if it did. */
export function earlyEnd({ baseline, steered, status }: Generation): string {
  const lengthOf = ({ continuations }: VariantText) => continuations.flatMap(({ pieces }) => pieces).length;
  const [own, other] = [lengthOf(steered), lengthOf(baseline)];
  const isEarly = (status === "done" || status === "stored") && 2 * own < other;
  return isEarly ? `; the steered text ended early, after ${formatPlural(own, "token")} beside ${other}` : "";
}

/** Status of one variant, e.g. `58 of 64 tokens, 38 tokens/s`. */
export function describeProgress(state: Generation, variant: Variant): string {
  if (state.status === "idle" || state.status === "stored") return "";
  if (state.status === "waiting") {
    if (state.before === null) return "reading the prompt";
    if (state.before === 0) return "next in the queue";
    return `${formatPlural(state.before, "request")} ahead`;
  }
  const count = state[variant].continuations[0]?.tokens.length ?? 0;
  const tokens = formatPlural(count, "token");
  if (state.status === "stopped") return `stopped after ${tokens}`;
  if (state.status === "failed") return `interrupted after ${tokens}`;
  if (state.done !== null) return `done, ${tokens}${REASONS[state.done[`${variant}_reason`]]}`;
  const rate = tokensPerSecond(state[variant]);
  return `${count} of ${state.maxTokens} tokens${rate === null ? "" : `, ${formatFixed(rate, rate < 10 ? 1 : 0)} tokens/s`}`;
}

/** Mean KL divergence per token between the variants over the steered texts, in nats; null if there are no tokens. */
export function meanKl({ continuations, storedKl = null }: VariantText): number | null {
  const tokens = continuations.flatMap((continuation) => continuation.tokens);
  return tokens.length === 0 ? storedKl : tokens.reduce((sum, token) => sum + token.kl, 0) / tokens.length;
}

const MAX_WORDS = 3;
/** The smallest change that counts, in nats; and in total, as a share of the largest. */
const MIN_CHANGE = 1;
const MIN_SHARE = 0.3;

/** Whether a token continues the word of the one before. */
const continues = (before = "", after = "") => /[\p{L}’']$/u.test(before) && /^[\p{L}’']/u.test(after);

/** Whole words and signs of some texts, each with the changes of its log-probability. */
function wordChanges(texts: readonly VariantText[]): ReadonlyMap<string, readonly number[]> {
  const changes = new Map<string, number[]>();
  for (const { pieces } of texts.flatMap(({ continuations }) => continuations))
    for (const [i, { text, value }] of pieces.entries()) {
      const word = text.trim().toLowerCase();
      const isPart = continues(pieces[i - 1]?.text, text) || continues(text, pieces[i + 1]?.text);
      if (word !== "" && !isPart) changes.set(word, [...(changes.get(word) ?? []), value ?? 0]);
    }
  return changes;
}

/**
 * The words and signs of a text whose log-probability the edits raised (1) or lowered (-1) most, as often as they did.
 * Each change is weighted with the log-odds of the word in this text against the others, so that words of any text are
 * not the first.
 */
export function changedWords(own: VariantText, sign: 1 | -1, ...others: readonly VariantText[]): readonly string[] {
  const elsewhere = wordChanges(others);
  const found = [...wordChanges([own])].map(([word, all]) => {
    const large = all.map((value) => sign * value).filter((change) => change >= MIN_CHANGE);
    const odds = Math.log((all.length + 0.5) / ((elsewhere.get(word)?.length ?? 0) + 0.5));
    return { word, total: Math.max(0, odds) * large.reduce((sum, change) => sum + change, 0), times: large.length };
  });
  const sorted = found.filter(({ total }) => total > 0).sort((a, b) => b.total - a.total);
  return sorted
    .filter(({ total }) => total >= MIN_SHARE * (sorted[0]?.total ?? 0))
    .slice(0, MAX_WORDS)
    .map(({ word, times }) => `“${word}”${times > 1 ? ` × ${times}` : ""}`);
}

const textPieces = ({ tokens, pieces }: Continuation) => pieces.filter((_, i) => tokens[i]?.reason !== "end-of-text");

/** The text without its end-of-text token. */
export function continuationText(continuation: Continuation = NO_TOKENS): string {
  const texts = textPieces(continuation).map(({ text }) => text);
  return texts.join("");
}

const CHARACTERS_PER_TOKEN = 4.5;

/** Characters of a text and its prompt for which to leave room, so that what follows stays in place while it grows. */
export function expectedCharacters(generation: Generation, prompt: string, maxTokens: number): number {
  const variants = [generation.baseline, generation.steered];
  const lengths = (of: keyof Pick<VariantText, "continuations" | "previous">) =>
    variants.flatMap(({ [of]: texts = [] }) => texts.map((one) => continuationText(one).length));
  if (!isRunning(generation)) return prompt.length + Math.max(0, ...lengths("continuations"));
  const earlier = lengths(generation.isOutdated ? "continuations" : "previous");
  return Math.round(prompt.length + (earlier.length > 0 ? Math.max(...earlier) : CHARACTERS_PER_TOKEN * maxTokens));
}

/** Everything up to the last end of a sentence, or of a list's item before another. An item's number ends no sentence. */
const WHOLE_SENTENCES = /^[^]*(?:(?<!^\s*\d+)[.!?…]["'”’)*]*(?=\s|$)|[^\s:](?=\s*\n\s*(?:\d+\.|[-*•])\s))/m;

/** The first tokens of each continuation. */
const shortened = (text: VariantText, lengthOf: (tokens: readonly TokenEvent[]) => number): VariantText => ({
  ...text,
  continuations: text.continuations.map(({ tokens, pieces }) => {
    const length = lengthOf(tokens);
    return { tokens: tokens.slice(0, length), pieces: pieces.slice(0, length) };
  }),
});

/** Tokens of the whole sentences of a text that ended at the limit of tokens. */
function wholeSentences(tokens: readonly TokenEvent[]): number {
  const whole = WHOLE_SENTENCES.exec(tokens.map(({ text }) => text).join(""))?.[0];
  let length = 0;
  const end = tokens.findIndex(({ text }) => (length += text.length) >= (whole?.length ?? Infinity));
  return end === -1 ? tokens.length : end + 1;
}

/** A chat's replies: whole sentences, without the token that ends a reply, and nothing of the turn before. */
export function asReplies(state: Generation): Generation {
  const reply = (variant: Variant) => {
    const text = shortened(state[variant], (all) => all.filter(({ reason }) => reason !== "end-of-text").length);
    return state.done?.[`${variant}_reason`] === "length" ? shortened(text, wholeSentences) : text;
  };
  return { ...state, baseline: reply("baseline"), steered: reply("steered") };
}

/** The first text of each variant without its end-of-text token, once both are complete. */
export function bothReplies(generation: Generation) {
  const [steered, original] = [generation.steered.continuations[0], generation.baseline.continuations[0]];
  if (steered === undefined || original === undefined || generation.isOutdated || isRunning(generation))
    return undefined;
  const texts = { steered: continuationText(steered).trim(), original: continuationText(original).trim() };
  return texts.steered === "" ? undefined : texts;
}

/** The steered texts of one generation beside the original model's of another, which has a chat of its own. */
export function withOriginal(steered: Generation, original: Generation): Generation {
  const isWaiting = isRunning(original) && !isRunning(steered);
  return {
    ...steered,
    baseline: original.baseline,
    isOutdated: steered.isOutdated || original.isOutdated,
    failure: steered.failure ?? original.failure,
    done: steered.done && original.done && { ...steered.done, baseline_reason: original.done.baseline_reason },
    status: isWaiting ? original.status : steered.status,
  };
}

/** True if both variants have begun to answer the present request. */
export const hasBothTexts = ({ baseline, steered, isOutdated }: Generation) =>
  !isOutdated && baseline.continuations.length > 0 && steered.continuations.length > 0;

/** The texts as they are, those of the control, and the turns of the original model's own chat. */
export function shownTexts(
  generation: Generation,
  original: readonly Turn[] | null = null,
  control: Control | null = null,
): SessionResult {
  const shown = ({ id, text, value }: Piece) => ({ id, text, delta_log_probability: value ?? 0 });
  const of = ({ continuations }: VariantText) => continuations.map((one) => textPieces(one).map(shown));
  const texts = { baseline: of(generation.baseline), steered: of(generation.steered), figures: generation.figures };
  const { steered = NO_TEXT, isOutdated = true } = control?.generation ?? {};
  // One that a session keeps has no baseline.
  const isComplete =
    control !== null && !isRunning(control.generation) && !isOutdated && steered.continuations.length > 0;
  return {
    original_turns: [...(original ?? [])],
    ...texts,
    kl_nats: meanKl(generation.steered),
    ...(isComplete && {
      control: of(steered),
      control_edits: control.edits.map(toHttpEdit),
      control_figures: control.generation.figures,
    }),
  };
}

/** Events within this interval are rendered together. */
const RENDER_INTERVAL_MS = 30;

/** Feeds the events of a generation to `update`, tokens a few times per second. */
async function consumeStream(
  run: string,
  request: SteeringRequest,
  signal: AbortSignal,
  update: (change: (state: Generation) => Generation) => void,
): Promise<void> {
  let events: SteeringEvent[] = [];
  let flushedAt = 0;
  const flush = () => {
    const [ready, now] = [events, performance.now()];
    events = [];
    flushedAt = now;
    if (ready.length > 0) update((state) => reduceEvents(state, ready, now));
  };
  try {
    for await (const event of streamSteering(run, request, signal)) {
      events.push(event);
      if (event.event !== "token" || performance.now() - flushedAt > RENDER_INTERVAL_MS) flush();
    }
    flush();
    update(ended);
  } catch (error) {
    flush();
    if (!signal.aborted) update((state) => failed(state, messageOf(error)));
  }
}

export function useGeneration(run: string) {
  const [generation, setGeneration] = useState<Generation>(NO_GENERATION);
  const controllerRef = useRef<AbortController | null>(null);
  const start = useCallback(
    (request: SteeringRequest, shown?: Generation) => {
      controllerRef.current?.abort();
      const controller = new AbortController();
      controllerRef.current = controller;
      setGeneration((own) => requested(shown ?? own));
      void consumeStream(run, request, controller.signal, (change) => {
        if (controllerRef.current === controller) setGeneration(change);
      });
    },
    [run],
  );
  const end = (change: (state: Generation) => Generation) => {
    controllerRef.current?.abort();
    setGeneration(change);
  };
  useEffect(
    () => () => {
      controllerRef.current?.abort();
      controllerRef.current = null;
    },
    [],
  );
  return { generation, start, stop: () => end(stopped), clear: () => end(() => NO_GENERATION) };
}

export type Generator = ReturnType<typeof useGeneration>;

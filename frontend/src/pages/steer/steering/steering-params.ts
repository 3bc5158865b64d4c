/** URL parameters of the Steering page; together they reproduce the texts. */

import type { Prompt } from "@/api/queries";
import type { Sampling, SteeringRequest, Turn, Variant } from "@/api/types";
import { steeredTurns, turnsParam } from "@/components/prompt/turns-param";
import {
  choiceParam,
  editsParam,
  numberParam,
  type Param,
  type Range,
  textParam,
  type UrlState,
  type Values,
} from "@/hooks/use-url-state";
import { ALWAYS, type Edit, toHttpEdit } from "@/lib/edits/edits";
import { formatPlural } from "@/lib/text/format";

/** A locked token: variant, sample and position. */
export interface SteeringLock {
  readonly variant: Variant;
  readonly sample: number;
  readonly position: number;
}

const lockParam: Param<SteeringLock | null> = {
  read: (text) => {
    const match = /^(baseline|steered)\.(\d+)\.(\d+)$/.exec(text ?? "");
    if (match === null) return null;
    return { variant: match[1] as Variant, sample: Number(match[2]), position: Number(match[3]) };
  },
  write: (lock) => (lock === null ? null : `${lock.variant}.${lock.sample}.${lock.position}`),
};

/** Written as JSON, because stop texts may contain commas and line breaks. */
const textsParam: Param<readonly string[]> = {
  read: (text) => {
    try {
      const parsed: unknown = JSON.parse(text ?? "[]");
      return Array.isArray(parsed) ? parsed.filter((one): one is string => typeof one === "string" && one !== "") : [];
    } catch {
      return [];
    }
  },
  write: (value) => (value.length === 0 ? null : JSON.stringify(value)),
};

/** Selected prompt tokens, e.g. `1,4,5`; 0 is the start token. */
const positionsParam: Param<readonly number[]> = {
  read: (text) => {
    const positions = (text ?? "").split(",").flatMap((part) => (/^\d+$/.test(part) ? [Number(part)] : []));
    return [...new Set(positions)].sort((a, b) => a - b);
  },
  write: (value) => (value.length === 0 ? null : value.join(",")),
};

/** A number of the sampling, with the server's name, default and limits. */
interface SamplingSetting extends Required<Range> {
  readonly field: Exclude<keyof Sampling, "stop">;
  readonly usual: number;
  readonly label: string;
  readonly hint: string;
  /** Displayed decimals; typed ones are kept. */
  readonly digits: 0 | 2;
}

const setting = (
  field: SamplingSetting["field"],
  [label, hint]: readonly [string, string],
  usual: number,
  [min, max]: readonly [number, number],
  digits: 0 | 2 = 0,
): SamplingSetting => ({ field, label, hint, usual, min, max, digits });

export const SAMPLING = {
  tokens: setting("max_tokens", ["Tokens", "maximum"], 64, [1, 4096]),
  samples: setting("samples", ["Samples", "per variant"], 1, [1, 16]),
  temperature: setting("temperature", ["Temperature", "0 = greedy"], 0.7, [0, 5], 2),
  top_p: setting("top_p", ["Top p", "1 = off"], 0.95, [0.01, 1], 2),
  top_k: setting("top_k", ["Top k", "0 = off"], 0, [0, 100_000]),
  penalty: setting("repetition_penalty", ["Repetition penalty", "1 = off"], 1.1, [0.5, 3], 2),
  seed: setting("seed", ["Seed", "both texts"], 0, [0, 2 ** 53 - 1]),
};

export type SettingName = keyof typeof SAMPLING;
export const SETTING_NAMES = Object.keys(SAMPLING) as SettingName[];

const bySetting = <T>(valueOf: (setting: SamplingSetting) => T) =>
  Object.fromEntries(SETTING_NAMES.map((name) => [name, valueOf(SAMPLING[name])])) as Record<SettingName, T>;

export const MAX_STOP_TEXTS = 8;
/** The server's limit per generation. */
export const MAX_EDITS = 64;

export const STEERING_PARAMS = {
  prompt: textParam(""),
  edits: editsParam,
  mode: choiceParam(["residual", "replace"], "residual"),
  scope: choiceParam(["all", "generated", "prompt", "chosen"], "all"),
  at: positionsParam,
  /** Active experts per token; null for the run's own K. */
  k: numberParam(null, { min: 1 }),
  turns: turnsParam,
  ...bySetting((setting) => numberParam(setting.usual, setting)),
  stop: textsParam,
  lock: lockParam,
  code: choiceParam(["command", "python"], "command"),
  /** What shall and shall not follow the prompt, as typed in the search by effect. */
  wanted: textParam(""),
  unwanted: textParam(""),
  /** Id of the open session. */
  session: textParam(""),
};

/** Replies are longer than the continuations of a text. */
export const CHAT_PARAMS = { ...STEERING_PARAMS, tokens: numberParam(128, SAMPLING.tokens) };

/** Selected tokens, lock and session belong to one prompt, so a new one clears them. */
export const NO_SELECTION = { lock: null, at: [], session: "" };

/** Router state of an address that a session wrote. */
export const OPENED = "opened";

export type SteeringParams = Values<typeof STEERING_PARAMS>;
export type SteeringState = UrlState<typeof STEERING_PARAMS>;

/** The API request; contains exactly what determines the texts. */
export function steeringRequest(params: SteeringParams, edits: readonly Edit[]): SteeringRequest {
  return {
    ...(params.turns.length === 0 ? { prompt: params.prompt } : { turns: steeredTurns(params.turns) }),
    edits: edits.map(toHttpEdit),
    mode: params.mode,
    ...(params.k !== null && { k: Math.round(params.k) }),
    ...(params.scope === "chosen" ? { scope: "prompt", positions: [...params.at] } : { scope: params.scope }),
    sampling: {
      ...Object.fromEntries(
        SETTING_NAMES.map((name) => {
          const { field, digits } = SAMPLING[name];
          return [field, digits === 0 ? Math.round(params[name]) : params[name]];
        }),
      ),
      stop: [...params.stop],
    },
  };
}

/** The prompt, for routing. */
export function paramsToPrompt({ prompt, turns, k }: Pick<SteeringParams, "prompt" | "turns" | "k">): Prompt {
  return { text: turns.length === 0 ? prompt : "", turns: steeredTurns(turns), k };
}

/** The edits of a request or a saved session. */
export function requestEdits(edits: NonNullable<SteeringRequest["edits"]>): readonly Edit[] {
  return edits.map(({ run, when, strength = 1, ...edit }) => ({
    ...edit,
    strength,
    ...(run != null && { run }),
    ...(when != null && { when: { ...ALWAYS, ...when } }),
  }));
}

/** The page's parameters that reproduce a request's texts. `originals`: turns of the original model's own chat. */
export function requestToParams(request: SteeringRequest, originals: readonly Turn[] = []): Partial<SteeringParams> {
  const { sampling = {}, edits = [], positions, turns = [] } = request;
  return {
    prompt: request.prompt ?? "",
    turns: turns.map((turn, i) => {
      const original = originals[i]?.text ?? turn.text;
      return original === turn.text ? turn : { ...turn, original };
    }),
    edits: requestEdits(edits),
    mode: request.mode ?? "residual",
    scope: positions == null ? (request.scope ?? "all") : "chosen",
    at: positions ?? [],
    k: request.k ?? null,
    ...bySetting(({ field, usual }) => sampling[field] ?? usual),
    stop: sampling.stop ?? [],
  };
}

/** Summary of the sampling settings, e.g. `greedy, 64 tokens, seed 16`. */
export function describeSampling({ temperature, tokens, samples, seed, stop }: SteeringParams): string {
  const parts = [
    temperature === 0 ? "greedy" : `temperature ${temperature}`,
    formatPlural(tokens, "token"),
    samples > 1 && `${samples} samples`,
    temperature > 0 && `seed ${seed}`,
    stop.length > 0 && formatPlural(stop.length, "stop text"),
  ];
  return parts.filter((part) => part !== false).join(", ");
}

const SCOPES = { all: "all tokens", generated: "generated tokens only", prompt: "prompt tokens only" } as const;

export function describeScope({ scope, mode, at }: Pick<SteeringParams, "scope" | "mode" | "at">): string {
  const chosen = formatPlural(at.length, "selected prompt token");
  return `${scope === "chosen" ? chosen : SCOPES[scope]}, ${mode === "residual" ? "residual" : "full replacement"}`;
}

/** A text with the space that separates it from a prompt before it. */
export function spaced(text: string, prompt: string): string {
  const isAfterWord = prompt !== "" && !/\s$/u.test(prompt);
  return isAfterWord && !/^[\s\p{Po}\p{Pe}\p{Pf}]/u.test(text) ? ` ${text}` : text;
}

/** Alternatives are separated by a vertical bar. */
export function wantedTexts(typed: string, prompt: string): string[] {
  const texts = typed.split("|").map((text) => text.trim());
  return texts.filter((text) => text !== "").map((text) => spaced(text, prompt));
}

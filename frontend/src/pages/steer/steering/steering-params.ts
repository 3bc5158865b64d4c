/** URL parameters of the Steering page; together they reproduce the texts. */

import type { Prompt } from "@/api/queries";
import type { Sampling, SteeringRequest, Variant } from "@/api/types";
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
import { readHttpCondition } from "@/lib/edits/conditions";
import { type Edit, toHttpEdit } from "@/lib/edits/edits";

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

export const SAMPLING = {
  tokens: { field: "max_tokens", usual: 64, min: 1, max: 4096, label: "Tokens", hint: "maximum", digits: 0 },
  samples: { field: "samples", usual: 1, min: 1, max: 16, label: "Samples", hint: "per variant", digits: 0 },
  temperature: {
    field: "temperature",
    usual: 0.7,
    min: 0,
    max: 5,
    label: "Temperature",
    hint: "0 = greedy",
    digits: 2,
  },
  top_p: { field: "top_p", usual: 0.95, min: 0.01, max: 1, label: "Top p", hint: "1 = off", digits: 2 },
  top_k: { field: "top_k", usual: 0, min: 0, max: 100_000, label: "Top k", hint: "0 = off", digits: 0 },
  penalty: {
    field: "repetition_penalty",
    usual: 1.1,
    min: 0.5,
    max: 3,
    label: "Repetition penalty",
    hint: "1 = off",
    digits: 2,
  },
  seed: { field: "seed", usual: 0, min: 0, max: 2 ** 53 - 1, label: "Seed", hint: "both texts", digits: 0 },
} as const satisfies Readonly<Record<string, SamplingSetting>>;

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

/** Selected tokens, lock and session belong to one prompt, so a new one clears them. */
export const NO_SELECTION = { lock: null, at: [], session: "" };

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
    ...(when != null && { when: readHttpCondition(when) }),
  }));
}

/** The page's parameters that reproduce a request's texts. */
export function requestToParams(request: SteeringRequest): Partial<SteeringParams> {
  const { sampling = {}, edits = [], positions, turns = [] } = request;
  return {
    prompt: request.prompt ?? "",
    turns,
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
export function describeSampling(params: SteeringParams): string {
  const parts = [
    params.temperature === 0 ? "greedy" : `temperature ${params.temperature}`,
    `${params.tokens} ${params.tokens === 1 ? "token" : "tokens"}`,
    ...(params.samples > 1 ? [`${params.samples} samples`] : []),
    ...(params.temperature === 0 ? [] : [`seed ${params.seed}`]),
    ...(params.stop.length > 0 ? [`${params.stop.length} stop ${params.stop.length === 1 ? "text" : "texts"}`] : []),
  ];
  return parts.join(", ");
}

const SCOPES = { all: "all tokens", generated: "generated tokens only", prompt: "prompt tokens only" } as const;

export function describeScope({ scope, mode, at }: Pick<SteeringParams, "scope" | "mode" | "at">): string {
  const chosen = `${at.length} selected prompt ${at.length === 1 ? "token" : "tokens"}`;
  return `${scope === "chosen" ? chosen : SCOPES[scope]}, ${mode === "residual" ? "residual" : "full replacement"}`;
}

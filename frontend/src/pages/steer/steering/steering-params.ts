/** URL parameters of the Steering page; together they reproduce the texts. */

import type { Prompt } from "@/api/queries";
import type { Variant, SteeringRequest } from "@/api/types";
import { steeredTurns, turnsParam } from "@/components/prompt/turns-param";
import { choiceParam, editsParam, numberParam, type Param, textParam, type Values } from "@/hooks/use-url-state";
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

const NO_STOP_TEXTS: readonly string[] = [];

/** Written as JSON, because stop texts may contain commas and line breaks. */
const textsParam: Param<readonly string[]> = {
  read: (text) => {
    try {
      const parsed: unknown = JSON.parse(text ?? "[]");
      return Array.isArray(parsed) ? parsed.filter((one): one is string => typeof one === "string" && one !== "") : [];
    } catch {
      return NO_STOP_TEXTS;
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

/** Limits and defaults of the server. */
export const LIMITS = {
  tokens: { min: 1, max: 4096 },
  samples: { min: 1, max: 16 },
  temperature: { min: 0, max: 5 },
  top_p: { min: 0.01, max: 1 },
  top_k: { min: 0, max: 100_000 },
  penalty: { min: 0.5, max: 3 },
  seed: { min: 0, max: 2 ** 53 - 1 },
} as const;

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
  tokens: numberParam(64, LIMITS.tokens),
  samples: numberParam(1, LIMITS.samples),
  temperature: numberParam(0.7, LIMITS.temperature),
  top_p: numberParam(0.95, LIMITS.top_p),
  top_k: numberParam(0, LIMITS.top_k),
  penalty: numberParam(1.1, LIMITS.penalty),
  seed: numberParam(0, LIMITS.seed),
  stop: textsParam,
  lock: lockParam,
  code: choiceParam(["command", "python"], "command"),
  /** What shall and shall not follow the prompt, as typed in the search by effect. */
  wanted: textParam(""),
  unwanted: textParam(""),
  /** Id of the open session. */
  session: textParam(""),
};

export type SteeringParams = Values<typeof STEERING_PARAMS>;

/** The API request; contains exactly what determines the texts. */
export function steeringRequest(params: SteeringParams, edits: readonly Edit[]): SteeringRequest {
  return {
    ...(params.turns.length === 0 ? { prompt: params.prompt } : { turns: steeredTurns(params.turns) }),
    edits: edits.map(toHttpEdit),
    mode: params.mode,
    ...(params.k !== null && { k: Math.round(params.k) }),
    ...(params.scope === "chosen" ? { scope: "prompt", positions: [...params.at] } : { scope: params.scope }),
    sampling: {
      max_tokens: Math.round(params.tokens),
      samples: Math.round(params.samples),
      temperature: params.temperature,
      top_p: params.top_p,
      top_k: Math.round(params.top_k),
      repetition_penalty: params.penalty,
      seed: Math.round(params.seed),
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
    turns: turns,
    edits: requestEdits(edits),
    mode: request.mode ?? "residual",
    scope: positions == null ? (request.scope ?? "all") : "chosen",
    at: positions ?? [],
    k: request.k ?? null,
    tokens: sampling.max_tokens ?? 64,
    samples: sampling.samples ?? 1,
    temperature: sampling.temperature ?? 0.7,
    top_p: sampling.top_p ?? 0.95,
    top_k: sampling.top_k ?? 0,
    penalty: sampling.repetition_penalty ?? 1.1,
    seed: sampling.seed ?? 0,
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

/** What the Steering page keeps in its address: enough to write the same texts again. */

import type { Prompt } from "@/api/queries";
import type { Arm, SteeringRequest } from "@/api/types";
import { turnsParam } from "@/components/prompt/turns-param";
import type { Edit } from "@/lib/edits";
import { choiceParam, editsParam, numberParam, type Param, textParam, type Values } from "@/url-state";

/** A token held in place: of which arm, which continuation, which position. */
export interface SteeringLock {
  readonly arm: Arm;
  readonly sample: number;
  readonly position: number;
}

const lockParam: Param<SteeringLock | null> = {
  read: (text) => {
    const found = /^(default|steered)\.(\d+)\.(\d+)$/.exec(text ?? "");
    if (found === null) return null;
    return { arm: found[1] as Arm, sample: Number(found[2]), position: Number(found[3]) };
  },
  write: (lock) => (lock === null ? null : `${lock.arm}.${lock.sample}.${lock.position}`),
};

const NO_TEXTS: readonly string[] = [];

/** Texts may hold anything, line breaks and commas too: they are written as JSON. */
const textsParam: Param<readonly string[]> = {
  read: (text) => {
    try {
      const found: unknown = JSON.parse(text ?? "[]");
      return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string" && one !== "") : [];
    } catch {
      return NO_TEXTS;
    }
  },
  write: (value) => (value.length === 0 ? null : JSON.stringify(value)),
};

/** Indices of chosen prompt tokens, 0 being the start token: `1,4,5`. */
const positionsParam: Param<readonly number[]> = {
  read: (text) => {
    const found = (text ?? "").split(",").flatMap((part) => (/^\d+$/.test(part) ? [Number(part)] : []));
    return [...new Set(found)].sort((a, b) => a - b);
  },
  write: (value) => (value.length === 0 ? null : value.join(",")),
};

/** Bounds and defaults as the server has them. */
export const LIMITS = {
  tokens: { min: 1, max: 4096 },
  samples: { min: 1, max: 16 },
  temperature: { min: 0, max: 5 },
  top_p: { min: 0.01, max: 1 },
  top_k: { min: 0, max: 100_000 },
  penalty: { min: 0.5, max: 3 },
  seed: { min: 0, max: 2 ** 53 - 1 },
} as const;

export const MOST_STOP_TEXTS = 8;
/** What one generation may do at most, in all. */
export const MOST_EDITS = 64;

export const STEERING_PARAMS = {
  prompt: textParam(""),
  edits: editsParam,
  apply: choiceParam(["on-top", "replace"], "on-top"),
  scope: choiceParam(["all", "generated", "prompt", "chosen"], "all"),
  at: positionsParam,
  /** Experts of each token that the gate lets through; null for all that the run has. */
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
  /** The saved session that was opened. */
  session: textParam(""),
};

export type SteeringParams = Values<typeof STEERING_PARAMS>;

/** What the server is asked for. Only what determines the texts is in it. */
export function steeringRequest(params: SteeringParams, edits: readonly Edit[]): SteeringRequest {
  return {
    ...(params.turns.length === 0 ? { prompt: params.prompt } : { turns: [...params.turns] }),
    edits: edits.map(({ expert, mode, strength, run }) => ({
      expert,
      mode,
      strength,
      ...(run !== undefined && { run }),
    })),
    apply: params.apply,
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

/** What is continued, as it is routed. */
export function promptOf({ prompt, turns, k }: Pick<SteeringParams, "prompt" | "turns" | "k">): Prompt {
  return { text: turns.length === 0 ? prompt : "", turns, k };
}

/** The page's parameters that write the texts of a request. */
export function paramsOfRequest(request: SteeringRequest): Partial<SteeringParams> {
  const { sampling = {}, edits = [], positions, turns = [] } = request;
  return {
    prompt: request.prompt ?? "",
    turns: turns,
    edits: edits.map(({ run, ...edit }) => ({ ...(edit as Edit), ...(run != null && { run }) })),
    apply: request.apply ?? "on-top",
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

/** `greedy, 64 tokens, seed 16`: how the next token is chosen, in a line. */
export function samplingInWords(params: SteeringParams): string {
  const parts = [
    params.temperature === 0 ? "greedy" : `temperature ${params.temperature}`,
    `${params.tokens} ${params.tokens === 1 ? "token" : "tokens"}`,
    ...(params.samples > 1 ? [`${params.samples} samples`] : []),
    ...(params.temperature === 0 ? [] : [`seed ${params.seed}`]),
    ...(params.stop.length > 0 ? [`${params.stop.length} stop ${params.stop.length === 1 ? "text" : "texts"}`] : []),
  ];
  return parts.join(", ");
}

const SCOPES = { all: "all tokens", generated: "generated tokens only", prompt: "the prompt’s tokens only" } as const;

export function scopeInWords({ scope, apply, at }: Pick<SteeringParams, "scope" | "apply" | "at">): string {
  const chosen = `${at.length} chosen ${at.length === 1 ? "token" : "tokens"} of the prompt`;
  return `${scope === "chosen" ? chosen : SCOPES[scope]}, ${apply === "on-top" ? "on top of the MLP" : "in place of the MLP"}`;
}

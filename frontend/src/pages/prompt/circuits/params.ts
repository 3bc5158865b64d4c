/** URL parameters of the Circuits page. */

import type { CircuitTarget } from "@/api/types";
import { choiceParam, numberParam, type Param, textParam } from "@/hooks/use-url-state";
import { layersParam } from "@/pages/prompt/layers-param";

export const MOST_PROBABLE: CircuitTarget = { kind: "token", token: null };

const isId = (text: string | undefined): text is string => text !== undefined && /^\d+$/.test(text);

/** `12`, `12-7`, `any:12,7`, `expert:RUN/31` or `text: a continuation`; null for the most probable token. */
export const targetParam: Param<CircuitTarget> = {
  read: (text) => {
    if (text === null) return MOST_PROBABLE;
    if (text.startsWith("text:")) return { kind: "continuation", text: text.slice(5) };
    const [, run, expert] = /^expert:(.+)\/(\d+)$/.exec(text) ?? [];
    if (run !== undefined && expert !== undefined) return { kind: "expert", run, expert: Number(expert) };
    if (text.startsWith("any:")) {
      const tokens = text.slice(4).split(",").filter(isId).map(Number);
      return tokens.length === 0 ? MOST_PROBABLE : { kind: "set", tokens };
    }
    const [token, other] = text.split("-");
    if (!isId(token)) return MOST_PROBABLE;
    if (!isId(other)) return { kind: "token", token: Number(token) };
    return { kind: "difference", token: Number(token), other: Number(other) };
  },
  write: (target) => {
    switch (target.kind) {
      case "token":
        return target.token == null ? null : String(target.token);
      case "difference":
        return `${target.token}-${target.other}`;
      case "set":
        return `any:${target.tokens.join(",")}`;
      case "continuation":
        return `text:${target.text}`;
      case "expert":
        return `expert:${target.run}/${target.expert}`;
    }
  },
};

export const CIRCUIT_PARAMS = {
  prompt: textParam(""),
  layers: layersParam,
  target: targetParam,
  /** Position after which the target is predicted; null for the last one. */
  at: numberParam(null, { min: 0 }),
  errors: choiceParam(["kept", "dropped"], "kept"),
  nodes: numberParam(20, { min: 1, max: 100 }),
  /** Index of the selected node. */
  node: numberParam(1, { min: 0 }),
};

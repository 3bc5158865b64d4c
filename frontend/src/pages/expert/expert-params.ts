/** What the address of an expert's page holds. */

import { CONCORDANCE_MODES, type ContextToken } from "@/components/tokens/concordance";
import { choiceParam, flagParam, type Param, textParam } from "@/url-state";

/** A locked token, as `interval.rank.position`. */
export const lockParam: Param<ContextToken | null> = {
  read: (text) => {
    const found = /^(\d+)\.(\d+)\.(\d+)$/.exec(text ?? "");
    if (found === null) return null;
    return { interval: Number(found[1]), rank: Number(found[2]), position: Number(found[3]) };
  },
  write: (token) => (token === null ? null : `${token.interval}.${token.rank}.${token.position}`),
};

/** Intervals that are shown in full, as `0.2`. */
export const openParam: Param<readonly number[]> = {
  read: (text) =>
    (text ?? "")
      .split(".")
      .filter((part) => /^\d+$/.test(part))
      .map(Number),
  write: (intervals) => (intervals.length === 0 ? null : intervals.join(".")),
};

export const EXPERT_PARAMS = {
  view: choiceParam(CONCORDANCE_MODES, "aligned"),
  breaks: flagParam,
  by: choiceParam(["gate", "output", "tokens", "together"], "gate"),
  open: openParam,
  lock: lockParam,
  test: textParam(""),
};

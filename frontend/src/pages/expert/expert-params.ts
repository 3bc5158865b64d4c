/** What the address of an expert's page holds. */

import { CONCORDANCE_MODES, type ContextToken } from "@/components/tokens/concordance";
import { choiceParam, flagParam, numberParam, type Param, textParam } from "@/url-state";

/** Stands for the contexts at random over all intervals, where a group is named by its interval. */
export const AT_RANDOM = -1;

const LARGEST_SEED = 2 ** 31 - 1;

const readGroup = (text: string | undefined) => (text === "r" ? AT_RANDOM : Number(text));
const writeGroup = (group: number) => (group === AT_RANDOM ? "r" : String(group));

/** A locked token, as `interval.rank.position`; `r` for the group at random, in which the rank is the place. */
export const lockParam: Param<ContextToken | null> = {
  read: (text) => {
    const found = /^(\d+|r)\.(\d+)\.(\d+)$/.exec(text ?? "");
    if (found === null) return null;
    return { interval: readGroup(found[1]), rank: Number(found[2]), position: Number(found[3]) };
  },
  write: (token) => (token === null ? null : `${writeGroup(token.interval)}.${token.rank}.${token.position}`),
};

/** Groups that are shown in full, as `0.2.r`. */
export const openParam: Param<readonly number[]> = {
  read: (text) =>
    (text ?? "")
      .split(".")
      .filter((part) => /^(\d+|r)$/.test(part))
      .map(readGroup),
  write: (groups) => (groups.length === 0 ? null : groups.map(writeGroup).join(".")),
};

export const EXPERT_PARAMS = {
  view: choiceParam(CONCORDANCE_MODES, "aligned"),
  breaks: flagParam,
  by: choiceParam(["gate", "output", "tokens", "together"], "gate"),
  open: openParam,
  lock: lockParam,
  /** Seed of the contexts at random. */
  draw: numberParam(0, { min: 0, max: LARGEST_SEED }),
  test: textParam(""),
};

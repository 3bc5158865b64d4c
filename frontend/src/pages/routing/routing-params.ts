/** What the Routing page keeps in its address. */

import { choiceParam, flagParam, numberParam, type Param, textParam } from "@/url-state";

/** A token held in place, and the expert whose cell was chosen, if one was. */
export interface RoutingLock {
  /** Index into the tokens of the answer, so that 0 is the start token. */
  readonly position: number;
  readonly expert: number | null;
}

const lockParam: Param<RoutingLock | null> = {
  read: (text) => {
    const found = /^(\d+)(?:\.(\d+))?$/.exec(text ?? "");
    if (found === null) return null;
    return { position: Number(found[1]), expert: found[2] === undefined ? null : Number(found[2]) };
  },
  write: (lock) => {
    if (lock === null) return null;
    return lock.expert === null ? String(lock.position) : `${lock.position}.${lock.expert}`;
  },
};

/** Names of runs: `one,other`. */
const namesParam: Param<readonly string[]> = {
  read: (text) => (text ?? "").split(",").filter((name) => name !== ""),
  write: (names) => (names.length === 0 ? null : names.join(",")),
};

export const FIRST_ROWS = 18;
export const MORE_ROWS = 32;
const MOST_ROWS = 2000;

export const ROUTING_PARAMS = {
  prompt: textParam(""),
  lock: lockParam,
  /** A second text to compare with; null where there is none. */
  against: textParam(null),
  align: choiceParam(["aligned", "apart"], "aligned"),
  /** Runs of other layers that are shown too. */
  layers: namesParam,
  /** Experts of each token that are let through; null for all that the run has. */
  k: numberParam(null, { min: 1 }),
  rank: choiceParam(["summed", "largest", "often", "rarest"], "summed"),
  /** Experts that are active on more of all tokens than this (%) are left out. */
  usage: numberParam(100, { min: 0, max: 100 }),
  /** Experts that are active on most tokens are left out. */
  unshared: flagParam,
  /** The start token is shown. */
  start: flagParam,
  rows: numberParam(FIRST_ROWS, { min: 1, max: MOST_ROWS }),
  view: choiceParam(["map", "table"], "map"),
};

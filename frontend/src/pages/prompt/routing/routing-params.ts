/** URL parameters of the Routing page. */

import { choiceParam, flagParam, numberParam, type Param, textParam, type UrlState } from "@/hooks/use-url-state";

/** Names of runs in the address, e.g. `one,other`; null for one run of every other layer, `none` for none. */
export const layersParam: Param<readonly string[] | null> = {
  read: (text) => {
    if (text === null) return null;
    return text === "none" ? [] : text.split(",").filter((name) => name !== "");
  },
  write: (names) => (names === null ? null : names.length === 0 ? "none" : names.join(",")),
};

/** A locked token, and the expert of the locked cell, if any. */
export interface RoutingLock {
  /** Index into the tokens of the response; 0 is the start token. */
  readonly position: number;
  readonly expert: number | null;
}

const lockParam: Param<RoutingLock | null> = {
  read: (text) => {
    const match = /^(\d+)(?:\.(\d+))?$/.exec(text ?? "");
    if (match === null) return null;
    return { position: Number(match[1]), expert: match[2] === undefined ? null : Number(match[2]) };
  },
  write: (lock) => {
    if (lock === null) return null;
    return lock.expert === null ? String(lock.position) : `${lock.position}.${lock.expert}`;
  },
};

export const INITIAL_ROWS = 18;
export const MORE_ROWS = 32;
const MAX_ROWS = 2000;
/** Rows of a shared map; the server accepts 64. */
export const MAX_SHARED = 32;

export const ROUTING_PARAMS = {
  prompt: textParam(""),
  lock: lockParam,
  /** Run of the locked expert, in the view of several layers. */
  of: textParam(""),
  /** A text to compare with. */
  second: textParam(""),
  /** By default, whole texts are compared if few tokens are equal. */
  align: choiceParam(["auto", "aligned", "apart"], "auto"),
  /** Runs of other layers to show. */
  layers: layersParam,
  /** Active experts per token; null for the run's own K. */
  k: numberParam(null, { min: 1 }),
  rank: choiceParam(["specific", "summed", "largest", "often", "rarest"], "specific"),
  /** Hides experts above this density in percent. */
  density: numberParam(100, { min: 0, max: 100 }),
  /** Whether weak labels are not ordered after the others. */
  mixed: flagParam,
  /** Shows the start token. */
  start: flagParam,
  rows: numberParam(INITIAL_ROWS, { min: 1, max: MAX_ROWS }),
};

export type RoutingState = UrlState<typeof ROUTING_PARAMS>;

/** What the Circuits page keeps in its address. */

import { choiceParam, numberParam, type Param, textParam } from "@/url-state";

/** An expert on one token of the graph. */
export interface ChosenExpert {
  /** 0 is the start token. */
  readonly position: number;
  readonly layer: number;
  readonly expert: number;
}

export const chosenKey = ({ position, layer, expert }: ChosenExpert) => `${position}.${layer}.${expert}`;

const NONE: readonly ChosenExpert[] = [];

/** `5.3.560,6.3.12`: token, layer, expert. */
const chosenParam: Param<readonly ChosenExpert[]> = {
  read: (text) => {
    const found = (text ?? "").split(",").flatMap((part) => {
      const numbers = /^(\d+)\.(\d+)\.(\d+)$/.exec(part);
      if (numbers === null) return [];
      return [{ position: Number(numbers[1]), layer: Number(numbers[2]), expert: Number(numbers[3]) }];
    });
    return found.length === 0 ? NONE : found;
  },
  write: (value) => (value.length === 0 ? null : value.map(chosenKey).join(",")),
};

/** Names of runs: `one,other`; null for a run of every other layer, `none` for none. */
export const layersParam: Param<readonly string[] | null> = {
  read: (text) => {
    if (text === null) return null;
    return text === "none" ? [] : text.split(",").filter((name) => name !== "");
  },
  write: (names) => (names === null ? null : names.length === 0 ? "none" : names.join(",")),
};

export const CIRCUIT_PARAMS = {
  prompt: textParam(""),
  layers: layersParam,
  /** Id of the token that is explained; null for the most probable one. */
  target: numberParam(null, { min: 0 }),
  /** The token behind which it comes; null for the last. */
  at: numberParam(null, { min: 0 }),
  errors: choiceParam(["kept", "dropped"], "kept"),
  nodes: numberParam(40, { min: 2, max: 300 }),
  chosen: chosenParam,
  list: choiceParam(["nodes", "edges"], "nodes"),
};

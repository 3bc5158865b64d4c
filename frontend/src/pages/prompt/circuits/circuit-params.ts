/** URL parameters of the Circuits page. */

import { choiceParam, numberParam, type Param, textParam } from "@/hooks/use-url-state";

/** An expert on one token of the graph. */
export interface ChosenExpert {
  /** Token index; 0 is the start token. */
  readonly position: number;
  readonly layer: number;
  readonly expert: number;
}

export const chosenKey = ({ position, layer, expert }: ChosenExpert) => `${position}.${layer}.${expert}`;

const NONE: readonly ChosenExpert[] = [];

/** `5.3.560,6.3.12`: position, layer, expert. */
const chosenParam: Param<readonly ChosenExpert[]> = {
  read: (text) => {
    const chosen = (text ?? "").split(",").flatMap((part) => {
      const numbers = /^(\d+)\.(\d+)\.(\d+)$/.exec(part);
      if (numbers === null) return [];
      return [{ position: Number(numbers[1]), layer: Number(numbers[2]), expert: Number(numbers[3]) }];
    });
    return chosen.length === 0 ? NONE : chosen;
  },
  write: (value) => (value.length === 0 ? null : value.map(chosenKey).join(",")),
};

/** Run names, e.g. `one,other`; null for one run of every other layer, `none` for none. */
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
  /** Id of the explained token; null for the most probable one. */
  target: numberParam(null, { min: 0 }),
  /** Position after which it is predicted; null for the last one. */
  at: numberParam(null, { min: 0 }),
  errors: choiceParam(["kept", "dropped"], "kept"),
  nodes: numberParam(40, { min: 2, max: 300 }),
  chosen: chosenParam,
  table: choiceParam(["nodes", "edges"], "nodes"),
};

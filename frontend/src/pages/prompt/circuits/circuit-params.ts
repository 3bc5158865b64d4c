/** URL parameters of the Circuits page. */

import { choiceParam, numberParam, type Param, textParam } from "@/hooks/use-url-state";

/** Nodes that are shown as one, under a name. */
export interface Supernode {
  readonly name: string;
  /** Node ids. */
  readonly nodes: readonly string[];
}

const NO_IDS: readonly string[] = [];
const NO_SUPERNODES: readonly Supernode[] = [];

// Names, and ids in files of other programs, may contain the separators.
const ESCAPES: Readonly<Record<string, string>> = { "%": "%25", ",": "%2C", "~": "%7E" };
const writePart = (text: string) => text.replace(/[%,~]/g, (character) => ESCAPES[character] ?? character);
const readPart = (text: string) =>
  text.replace(/%(25|2C|7E)/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
const parts = (text: string | null) => (text ?? "").split(",").filter((part) => part !== "");

/** Node ids as in the graph's file, e.g. `3_560_7,E_12_4`: layer, expert or token, position. */
const idsParam: Param<readonly string[]> = {
  read: (text) => (text === null ? NO_IDS : parts(text).map(readPart)),
  write: (ids) => (ids.length === 0 ? null : ids.map(writePart).join(",")),
};

/** `girl~3_560_7~3_12_7,boy~…`: name and node ids of each supernode. */
const supernodesParam: Param<readonly Supernode[]> = {
  read: (text) => {
    const groups = parts(text).flatMap((group) => {
      const [name, ...nodes] = group.split("~").map(readPart);
      return name === undefined || nodes.length === 0 ? [] : [{ name, nodes }];
    });
    return groups.length === 0 ? NO_SUPERNODES : groups;
  },
  write: (groups) =>
    groups.length === 0 ? null : groups.map(({ name, nodes }) => [name, ...nodes].map(writePart).join("~")).join(","),
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
  /** Shares in percent of the influence that the shown nodes, and the shown edges, hold. */
  prune: numberParam(100, { min: 10, max: 100 }),
  edges: numberParam(100, { min: 10, max: 100 }),
  /** Magnification in percent; null for the largest that fits. */
  zoom: numberParam(null, { min: 50, max: 200 }),
  node: textParam(null),
  ablated: idsParam,
  pinned: idsParam,
  groups: supernodesParam,
  subgraph: choiceParam(["all", "pinned"], "all"),
  table: choiceParam(["nodes", "edges"], "nodes"),
};

/** What belongs to one graph, and is reset with it. */
export const NO_MARKS = { node: null, ablated: [], pinned: [], groups: [], subgraph: "all" } as const;

/** The ids with all of `members` added, or removed if they are all there. */
export function toggled(ids: readonly string[], members: readonly string[]): readonly string[] {
  const others = ids.filter((id) => !members.includes(id));
  return others.length + members.length === ids.length ? others : [...others, ...members];
}

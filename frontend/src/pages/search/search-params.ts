/** What the address of the search page holds: the passage, the token looked at, the ranking, the bound on usage. */

import { choiceParam, numberParam, textParam, type Values } from "@/url-state";

export const RANKINGS = ["mass", "lift"] as const;

export const SEARCH_PARAMS = {
  text: textParam(""),
  position: numberParam(null, { min: 0 }),
  by: choiceParam(RANKINGS, "mass"),
  max_usage: numberParam(null, { min: 0, max: 1 }),
};

export type SearchParams = Values<typeof SEARCH_PARAMS>;

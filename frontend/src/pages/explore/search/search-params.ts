/** URL parameters of the Search page. */

import { choiceParam, numberParam, textParam, type Values } from "@/hooks/use-url-state";

export const RANKINGS = ["mass", "lift"] as const;

export const SEARCH_PARAMS = {
  text: textParam(""),
  position: numberParam(null, { min: 0 }),
  by: choiceParam(RANKINGS, "mass"),
  max_density: numberParam(null, { min: 0, max: 1 }),
};

export type SearchParams = Values<typeof SEARCH_PARAMS>;

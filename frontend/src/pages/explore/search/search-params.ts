/** URL parameters of the Search page. */

import { choiceParam, numberParam, textParam, type Values } from "@/hooks/use-url-state";

export const RANKINGS = ["lift", "mass"] as const;

/** `words` are looked up in labels, tokens and examples; a `passage` or two `texts` are run through the language model, and an `effect` is what it should say. */
const SEARCH_KINDS = ["words", "passage", "texts", "effect"] as const;

export const SEARCH_PARAMS = {
  kind: choiceParam(SEARCH_KINDS, "words"),
  text: textParam(""),
  position: numberParam(null, { min: 0 }),
  by: choiceParam(RANKINGS, "lift"),
  max_density: numberParam(null, { min: 0, max: 1 }),
};

export type SearchParams = Values<typeof SEARCH_PARAMS>;

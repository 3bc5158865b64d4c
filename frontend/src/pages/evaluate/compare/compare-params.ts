/** URL parameters of the Compare page. */

import { choiceParam, flagParam, type SetParams, textParam, type Values } from "@/hooks/use-url-state";
import { CURVES } from "@/pages/run/run-params";

export const MATCH_SORTS = ["cosine", "density", "other_density"] as const;
export type MatchSort = (typeof MATCH_SORTS)[number];

export const COMPARE_PARAMS = {
  run: textParam(null),
  /** The other run. */
  with: textParam(null),
  curve: choiceParam(CURVES, "normalized_mse"),
  sort: choiceParam(MATCH_SORTS, "cosine"),
  order: choiceParam(["asc", "desc"], "desc"),
  mutual: flagParam,
};

export type CompareParams = Values<typeof COMPARE_PARAMS>;
export type SetCompareParams = SetParams<typeof COMPARE_PARAMS>;

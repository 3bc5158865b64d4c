/** What the address of a comparison holds. */

import { choiceParam, flagParam, type SetParams, textParam, type Values } from "@/url-state";

import { CURVES } from "../run/run-params";

export const MATCH_SORTS = ["cosine", "usage", "other_usage"] as const;
export type MatchSort = (typeof MATCH_SORTS)[number];

export const COMPARE_PARAMS = {
  run: textParam(null),
  /** The other run. */
  with: textParam(null),
  curve: choiceParam(CURVES, "normalised_mse"),
  sort: choiceParam(MATCH_SORTS, "usage"),
  order: choiceParam(["asc", "desc"], "desc"),
  mutual: flagParam,
};

export type CompareParams = Values<typeof COMPARE_PARAMS>;
export type SetCompareParams = SetParams<typeof COMPARE_PARAMS>;

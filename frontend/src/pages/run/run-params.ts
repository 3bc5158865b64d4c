/** What the address of a run's page holds. */

import { choiceParam, textParam } from "@/url-state";

export const CURVES = ["normalised_mse", "dead_share", "l0", "stable_rank", "tokens_per_second"] as const;
export type CurveName = (typeof CURVES)[number];

export const RUN_PARAMS = {
  curve: choiceParam(CURVES, "normalised_mse"),
  /** Another run, drawn beside this one. */
  compare: textParam(null),
};

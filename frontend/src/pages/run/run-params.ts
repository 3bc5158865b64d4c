/** URL parameters of a run's page. */

import { choiceParam, textParam } from "@/hooks/use-url-state";

export const CURVES = ["normalized_mse", "dead_share", "l0", "stable_rank", "tokens_per_second"] as const;
export type CurveName = (typeof CURVES)[number];

export const RUN_PARAMS = {
  curve: choiceParam(CURVES, "normalized_mse"),
  /** Another run to compare with. */
  compare: textParam(null),
};

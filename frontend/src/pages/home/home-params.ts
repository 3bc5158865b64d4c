/** URL parameters of the home page. */

import { choiceParam, numberParam, textParam } from "@/hooks/use-url-state";

export const HOME_MODES = ["add", "scale"] as const;
export type HomeMode = (typeof HOME_MODES)[number];

export const MAX_STRENGTH = 8;

/** Strengths at first, where most texts stay fluent. */
export const HOME_STRENGTH: Readonly<Record<HomeMode, number>> = { add: 1.5, scale: 4 };

export const HOME_PARAMS = {
  expert: numberParam(null, { min: 0 }),
  /** Prompt to route; by default taken from the expert's top examples. */
  prompt: textParam(null),
  /** Position of the locked token in the routed prompt. */
  token: numberParam(null, { min: 0 }),
  /** Prompt that both texts continue. */
  steering_prompt: textParam(null),
  mode: choiceParam(HOME_MODES, "add"),
  strength: numberParam(null, { min: 0, max: MAX_STRENGTH }),
};

/** What the address of the home page holds. */

import { choiceParam, numberParam, textParam } from "@/url-state";

export const HOME_MODES = ["add", "scale"] as const;
export type HomeMode = (typeof HOME_MODES)[number];

export const MAX_STRENGTH = 8;

export const HOME_PARAMS = {
  expert: numberParam(null, { min: 0 }),
  /** Prompt that is routed; by default made of the expert's strongest context. */
  prompt: textParam(null),
  /** Position of the locked token in the routed prompt. */
  token: numberParam(null, { min: 0 }),
  /** Prompt that both texts go on from. */
  ask: textParam(null),
  mode: choiceParam(HOME_MODES, "add"),
  strength: numberParam(null, { min: 0, max: MAX_STRENGTH }),
};

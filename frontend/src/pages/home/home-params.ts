/** What the address of the home page holds. */

import { numberParam, textParam } from "@/url-state";

export const MAX_SCALE = 8;

export const HOME_PARAMS = {
  expert: numberParam(null, { min: 0 }),
  /** Prompt that is routed; by default made of the expert's strongest context. */
  prompt: textParam(null),
  /** Position of the locked token in the routed prompt. */
  token: numberParam(null, { min: 0 }),
  /** Prompt that both texts go on from. */
  ask: textParam(null),
  scale: numberParam(4, { min: 0, max: MAX_SCALE }),
};

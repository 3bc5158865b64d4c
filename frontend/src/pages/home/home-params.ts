/** URL parameters of the home page. */

import { numberParam, textParam } from "@/hooks/use-url-state";

export const MAX_STRENGTH = 4;

export const HOME_PARAMS = {
  /** Prompt to continue; by default that of the shown session. */
  prompt: textParam(null),
  /** Strength of every edit. */
  strength: numberParam(null, { min: 0, max: MAX_STRENGTH }),
  /** An expert to show instead of the session. */
  expert: numberParam(null, { min: 0 }),
};

/** What the Privacy page keeps in its address. Passages are not in it: addresses are copied, kept and logged. */

import { choiceParam, numberParam, textParam } from "@/url-state";

import { layersParam } from "../circuits/circuit-params";

export const PRIVACY_PARAMS = {
  layers: layersParam,
  theta: numberParam(0.75, { min: 0.01, max: 0.99 }),
  steps: numberParam(60, { min: 1, max: 200 }),
  /** Nats a token that other text may lose. */
  added: numberParam(0.05, { min: 0, max: 20 }),
  /** The first of the new runs of the result that is shown; null for the newest. */
  result: textParam(null),
  by: choiceParam(["true-token", "entropy"], "true-token"),
};

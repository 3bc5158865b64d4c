/** URL parameters of the Privacy page. Passages are private and therefore not part of the URL. */

import { choiceParam, flagParam, numberParam, textParam } from "@/hooks/use-url-state";
import { layersParam } from "@/pages/prompt/circuits/circuit-params";

export const PRIVACY_PARAMS = {
  layers: layersParam,
  theta: numberParam(0.5, { min: 0.01, max: 0.99 }),
  steps: numberParam(10, { min: 1, max: 200 }),
  /** Largest loss increase on the retain set, in nats per token. */
  max_added_loss: numberParam(0.05, { min: 0, max: 20 }),
  /** Whether the result contains the passages. */
  store: flagParam,
  /** The first of the result's new runs; null for the newest result. */
  result: textParam(null),
  by: choiceParam(["true-token", "entropy"], "true-token"),
};

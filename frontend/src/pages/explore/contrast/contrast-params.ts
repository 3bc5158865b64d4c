/** URL parameters of the Contrast page. Pasted texts are long and may be private, so they are not part of the URL. */

import { choiceParam, numberParam, textParam } from "@/hooks/use-url-state";

export const MAX_TOKENS = 32_768;

export const CONTRAST_PARAMS = {
  /** Kinds of the indexed text; null for a pasted text. */
  a: textParam(null),
  b: textParam(null),
  /** Tokens to read per text. */
  tokens: numberParam(8192, { min: 100, max: MAX_TOKENS }),
  /** Text in which the listed experts are more frequent. */
  more_in: choiceParam(["a", "b"], "a"),
};

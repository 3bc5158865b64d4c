/** URL parameters of the Contrast page. Pasted texts are long and may be private, so they are not part of the URL. */

import { choiceParam, numberParam, textParam } from "@/hooks/use-url-state";

export const MAX_TOKENS = 32_768;

export const OWN_TEXT = "";
/** Experts per direction; the page shows them in parts. */
export const MAX_EXPERTS = 20_000;

type Kinds = Readonly<Record<"a" | "b", string>>;

/**
 * The chosen kinds, where none is chosen the most frequent other one, and own text if there is none. A link may name a
 * kind that the run's text does not have. While the kinds load, they are undefined.
 */
export function chosenKinds(a: string | null, b: string | null, kinds: readonly string[] | undefined): Kinds {
  if (kinds === undefined) return { a: a ?? OWN_TEXT, b: b ?? OWN_TEXT };
  const known = (kind: string | null) => (kind === OWN_TEXT || kinds.includes(kind ?? "") ? kind : null);
  const other = (taken: string | null) =>
    (kinds.length > 1 ? kinds.find((kind) => kind !== taken) : undefined) ?? OWN_TEXT;
  const first = known(a) ?? other(known(b));
  return { a: first, b: known(b) ?? other(first) };
}

export const CONTRAST_PARAMS = {
  /** Kinds of the indexed text; `OWN_TEXT` for a pasted text, null for the kind that is chosen on opening. */
  a: textParam(null),
  b: textParam(null),
  /** Tokens to read per text. */
  tokens: numberParam(8192, { min: 100, max: MAX_TOKENS }),
  /** Text in which the listed experts are more frequent. */
  more_in: choiceParam(["a", "b"], "a"),
};

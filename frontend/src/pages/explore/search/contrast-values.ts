/** Values of a contrast as text, its parameters, documents and export. */

import type { ContrastHit, ContrastResult } from "@/api/types";
import { shownAutomatic } from "@/components/experts/expert-link";
import { recordsCsv } from "@/components/plots/figure";
import { choiceParam, numberParam, textParam } from "@/hooks/use-url-state";
import { formatCount } from "@/lib/text/format";

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

const MAX_DOCUMENTS = 5000;

/** Paragraphs separated by blank lines. */
export function splitDocuments(text: string): readonly string[] {
  const parts = text.split(/\n[^\S\n]*\n\s*/).map((part) => part.trim());
  return parts.filter((part) => part !== "").slice(0, MAX_DOCUMENTS);
}

function textOfLine(line: string, number: number): string {
  let row: unknown = null;
  try {
    row = JSON.parse(line);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const text = typeof row === "object" && row !== null && "text" in row ? row.text : row;
  if (typeof text === "string") return text;
  throw new Error(`Line ${number} has no text. Each line of a .jsonl file needs an object with the field "text".`);
}

/** The documents of a file as one text: the lines of a .jsonl file, else the text itself. */
export function textOfFile(name: string, content: string): string {
  if (!name.endsWith(".jsonl")) return content;
  const lines = content.split("\n").flatMap((line, i) => (line.trim() === "" ? [] : [textOfLine(line, i + 1)]));
  // Blank lines separate documents in the text box.
  return lines.map((line) => line.replace(/\n\s*\n/g, "\n").trim()).join("\n\n");
}

export type Side = "a" | "b";

/** Two significant digits without an exponent; all digits from 100 on. */
function digits(value: number): string {
  if (value >= 100) return formatCount(Math.round(value));
  const text = value.toPrecision(2);
  return text.includes("e") ? String(Number(text)) : text;
}

/**
 * In the direction in which it is above 1. An expert that is never active in the other text has no finite ratio; only
 * the lower end of the interval is given, which counts half an active token there.
 */
export function ratioText({ ratio, active_a, active_b }: ContrastHit["contrast"], side: Side) {
  const [value, from, to] =
    side === "a" ? [ratio.value, ratio.low, ratio.high] : [1 / ratio.value, 1 / ratio.high, 1 / ratio.low];
  if ((side === "a" ? active_b : active_a) === 0) {
    return { value: `only in ${side.toUpperCase()}`, interval: `× ${digits(from)} or more` };
  }
  return { value: `× ${digits(value)}`, interval: `${digits(from)} to ${digits(to)}` };
}

export function contrastCsv(result: Pick<ContrastResult, "more_in_a" | "more_in_b">): string {
  return recordsCsv(
    [...result.more_in_a, ...result.more_in_b].map(({ contrast: { expert, ratio, ...numbers }, label, automatic }) => ({
      ...{ expert, label, automatic_label: shownAutomatic(automatic)?.label },
      ...{ ratio: ratio.value, ratio_low: ratio.low, ratio_high: ratio.high },
      ...numbers,
    })),
  );
}

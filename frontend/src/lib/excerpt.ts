/** The place in a text where something was found, with a little around it. */

export interface Excerpt {
  readonly before: string;
  readonly match: string;
  readonly after: string;
}

const BEFORE = 24;
const AFTER = 70;

const joined = (text: string) => text.replace(/\s+/g, " ");

/** The first of the searched words that the text holds, whatever its case; the beginning where it holds none. */
export function excerpt(text: string, searched: string): Excerpt {
  const flat = joined(text);
  const lower = flat.toLowerCase();
  const wanted = [joined(searched.trim()), ...searched.trim().split(/\s+/)].filter((word) => word !== "");
  const found = wanted.find((word) => lower.includes(word.toLowerCase()));
  if (found === undefined) return { before: "", match: "", after: flat.slice(0, BEFORE + AFTER) };
  const at = lower.indexOf(found.toLowerCase());
  const from = Math.max(0, at - BEFORE);
  return {
    before: (from > 0 ? "…" : "") + flat.slice(from, at),
    match: flat.slice(at, at + found.length),
    after: flat.slice(at + found.length, at + found.length + AFTER),
  };
}

/** A match in a text, with some text around it. */

interface Excerpt {
  readonly before: string;
  readonly match: string;
  readonly after: string;
}

const BEFORE = 24;
const AFTER = 70;

const collapseSpaces = (text: string) => text.replace(/\s+/g, " ");

/** The first match of the phrase or one of its words, ignoring case; the beginning of the text if there is none. */
export function excerpt(text: string, query: string): Excerpt {
  const flat = collapseSpaces(text);
  const lower = flat.toLowerCase();
  const needles = [collapseSpaces(query.trim()), ...query.trim().split(/\s+/)].filter((word) => word !== "");
  const needle = needles.find((word) => lower.includes(word.toLowerCase()));
  if (needle === undefined) return { before: "", match: "", after: flat.slice(0, BEFORE + AFTER) };
  const at = lower.indexOf(needle.toLowerCase());
  const from = Math.max(0, at - BEFORE);
  return {
    before: from > 0 ? `… ${flat.slice(from, at).replace(/^\S*\s/, "")}` : flat.slice(0, at).trimStart(),
    match: flat.slice(at, at + needle.length),
    after: flat.slice(at + needle.length, at + needle.length + AFTER),
  };
}

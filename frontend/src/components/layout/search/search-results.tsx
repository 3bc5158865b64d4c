/** Search hits while typing, and how a hit is shown. */

import { useQuery } from "@tanstack/react-query";

import { searchQuery } from "@/api/queries";
import type { SearchHit } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { useDebouncedValue } from "@/hooks/use-values";

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
export function excerpt(text: string, query: string, before = BEFORE): Excerpt {
  const flat = collapseSpaces(text);
  const lower = flat.toLowerCase();
  const needles = [collapseSpaces(query.trim()), ...query.trim().split(/\s+/)].filter((word) => word !== "");
  const needle = needles.find((word) => lower.includes(word.toLowerCase()));
  if (needle === undefined) return { before: "", match: "", after: flat.slice(0, BEFORE + AFTER) };
  const at = lower.indexOf(needle.toLowerCase());
  const from = Math.max(0, at - before);
  return {
    before: from > 0 ? `… ${flat.slice(from, at).replace(/^\S*\s/, "")}` : flat.slice(0, at).trimStart(),
    match: flat.slice(at, at + needle.length),
    after: flat.slice(at + needle.length, at + needle.length + AFTER),
  };
}

/** The first, i.e. best, hit of each expert. */
export function firstHitPerExpert(hits: readonly SearchHit[]): readonly SearchHit[] {
  const seen = new Set<number>();
  return hits.filter(({ expert }) => !seen.has(expert) && seen.add(expert));
}

/** The expert whose number was typed, as in `46`, `#46` or `expert 46`; null for other text. */
export function typedExpert(text: string, numExperts: number): number | null {
  const digits = /^(?:expert\s*|#)?(\d{1,9})$/i.exec(text.trim())?.[1];
  return digits !== undefined && Number(digits) < numExperts ? Number(digits) : null;
}

/** What was searched without success. */
export function noMatchText(text: string): string {
  const isNumber = typedExpert(text, Infinity) !== null;
  return `No label, top token or top example contains “${text}”${isNumber ? ", and no expert has this number" : ""}.`;
}

export const SEARCH_LABEL = "Search labels, tokens and examples";

/** Last row of the list of hits: the Search page with all matches, or with the passage run through the model. */
export type PageRow = "words" | "passage";
export const isPageRow = (row: string): row is PageRow => row === "words" || row === "passage";

/** Search hits while typing, for `run` or the current run. */
export function useSearchHits(text: string, run?: string) {
  const current = useCurrentRun();
  const name = run ?? current.name;
  const debounced = useDebouncedValue(text.trim());
  const query = useQuery(searchQuery(name ?? "", name === null ? "" : debounced));
  return { hits: debounced === "" ? [] : (query.data ?? []), debounced, query };
}

import type { SearchHit } from "@/api/types";

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

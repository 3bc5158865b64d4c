/** Passages as they are typed: paragraphs with a blank line between them. */

import type { Context } from "@/api/types";
import { joinTokens } from "@/lib/kwic";
import { MARKER } from "@/lib/prompts";

export const MOST_PASSAGES = 64;

export function passagesOf(text: string): readonly string[] {
  const parts = text.split(/\n[^\S\n]*\n\s*/).map((part) => part.trim());
  return [...new Set(parts.filter((part) => part !== ""))];
}

/** What is typed, with one more passage below. */
export function withPassage(text: string, passage: string): string {
  const before = text.trimEnd();
  return before === "" ? passage : `${before}\n\n${passage}`;
}

/** The part of a context that is of the same text as the token it is kept for; paragraphs in it are joined. */
export function passageOf({ tokens, position }: Context): string {
  const ends = tokens.flatMap((token, i) => (MARKER.test(token) ? [i] : []));
  const from = ends.findLast((end) => end <= position) ?? -1;
  const to = ends.find((end) => end > position) ?? tokens.length;
  return joinTokens({ tokens: tokens.slice(from + 1, to) })
    .trim()
    .replace(/\n\s*\n/g, "\n");
}

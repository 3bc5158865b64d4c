/** Passages as typed: paragraphs separated by blank lines. */

import type { Context } from "@/api/types";
import { joinTokens } from "@/lib/text/kwic";
import { SPECIAL_TOKEN } from "@/lib/text/prompts";

export const MAX_PASSAGES = 64;

export function splitPassages(text: string): readonly string[] {
  const parts = text.split(/\n[^\S\n]*\n\s*/).map((part) => part.trim());
  return [...new Set(parts.filter((part) => part !== ""))];
}

/** The typed text with another passage appended. */
export function appendPassage(text: string, passage: string): string {
  const before = text.trimEnd();
  return before === "" ? passage : `${before}\n\n${passage}`;
}

/** The part of an example that belongs to the same document as its peak, as a single paragraph. */
export function contextPassage({ tokens, position }: Context): string {
  const ends = tokens.flatMap((token, i) => (SPECIAL_TOKEN.test(token) ? [i] : []));
  const from = ends.findLast((end) => end <= position) ?? -1;
  const to = ends.find((end) => end > position) ?? tokens.length;
  return joinTokens({ tokens: tokens.slice(from + 1, to) })
    .trim()
    .replace(/\n\s*\n/g, "\n");
}

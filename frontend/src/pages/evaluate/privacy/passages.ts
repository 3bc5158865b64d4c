/** Passages as typed: paragraphs separated by blank lines. */

/** Passages that most language models know by heart, so that the effect is visible. */
export const EXAMPLE_PASSAGES = [
  "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness.",
  "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and dedicated to the proposition that all men are created equal.",
];

export const MAX_PASSAGES = 64;

export function splitPassages(text: string): readonly string[] {
  const parts = text.split(/\n[^\S\n]*\n\s*/).map((part) => part.trim());
  return [...new Set(parts.filter((part) => part !== ""))];
}

/** The first tokens of a passage are not fine-tuned. A word, a digit or a symbol has one token at least. */
export const MIN_WORDS = 5;

export function isTooShort(passage: string): boolean {
  return (passage.match(/\p{Script=Latin}+|\S/gu) ?? []).length < MIN_WORDS;
}

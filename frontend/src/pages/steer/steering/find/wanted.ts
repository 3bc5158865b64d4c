/** Wanted texts as typed. */

/** Alternatives are separated by a vertical bar. Each gets the space that separates it from the prompt. */
export function wantedTexts(typed: string, prompt: string): string[] {
  const texts = typed
    .split("|")
    .map((text) => text.trim())
    .filter((text) => text !== "");
  return texts.map((text) => (needsSpace(prompt, text) ? ` ${text}` : text));
}

function needsSpace(prompt: string, text: string): boolean {
  return prompt !== "" && !/\s$/u.test(prompt) && !/^[\p{Po}\p{Pe}\p{Pf}]/u.test(text);
}

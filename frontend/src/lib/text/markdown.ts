/** Markdown in a text: bold, italic, code, headings and lists, character by character and never as HTML. */

import type { Piece } from "./kwic";

const INLINE = [
  { pattern: /(`+)[^`]+\1/g, style: "md-code" },
  { pattern: /(\*\*|__)(?=\S).+?(?<=\S)\1/g, style: "md-b" },
  { pattern: /(?<![\w*])([*_])(?=[^\s*_]).*?[^\s*_]\1(?![\w*])/g, style: "md-i" },
];
const HEADING = /^#{1,6} +/;
const BULLET = /^(\s*)[-*+] (?=\S)/;

/** What is drawn of each character, without the marks, and its style. */
function drawn(text: string) {
  const characters = text.split("");
  const styles = characters.map(() => "");
  let start = 0;
  const hide = (from: number, length: number) => characters.fill("", start + from, start + from + length);
  const style = (name: string, from: number, to: number) => {
    for (let i = start + from; i < start + to; i++) styles[i] = `${styles[i] ?? ""} ${name}`.trim();
  };
  for (const line of text.split("\n")) {
    const heading = HEADING.exec(line)?.[0].length ?? 0;
    hide(0, heading);
    if (heading > 0) style("md-b", 0, line.length);
    const bullet = BULLET.exec(line)?.[1];
    if (bullet !== undefined) characters[start + bullet.length] = "•";
    for (const { pattern, style: name } of INLINE) {
      for (const { 0: match, 1: mark = "", index } of line.matchAll(pattern)) {
        hide(index, mark.length);
        hide(index + match.length - mark.length, mark.length);
        style(name, index, index + match.length);
      }
    }
    start += line.length + 1;
  }
  return { characters, styles };
}

/** Parts of one style. */
export function markdownParts(text: string): readonly { readonly text: string; readonly style: string }[] {
  const { characters, styles } = drawn(text);
  const parts: { text: string; style: string }[] = [];
  characters.forEach((character, i) => {
    const last = parts.at(-1);
    const style = styles[i] ?? "";
    if (last?.style === style) last.text += character;
    else parts.push({ text: character, style });
  });
  return parts.filter((part) => part.text !== "");
}

/** The same tokens without the marks, and the style of each. */
export function markdownPieces(pieces: readonly Piece[]) {
  const { characters, styles } = drawn(pieces.map(({ text }) => text).join(""));
  let end = 0;
  const drawnPieces = pieces.map((piece) => {
    const start = end;
    end += piece.text.length;
    return {
      ...piece,
      text: characters.slice(start, end).join(""),
      style: styles.slice(start, end).find(Boolean) ?? "",
    };
  });
  return { pieces: drawnPieces, styles: drawnPieces.map(({ style }) => style) };
}

/** Tokens as text: display, and names that show a token's exact characters. */

/**
 * Split off leading spaces, which are rendered outside the highlight. A token of spaces only keeps its last one as the
 * body, so that it can be shaded.
 */
export function splitLeadingSpace(text: string) {
  const body = text.replace(/^ +/, "");
  if (body === "" && text !== "") return { leadingSpace: text.slice(0, -1), body: " " };
  return { leadingSpace: text.slice(0, text.length - body.length), body };
}

interface VisiblePart {
  readonly text: string;
  /** Whether this is a symbol for an invisible character, rendered dimmer. */
  readonly isSymbol: boolean;
}

/** Sign of a boundary between documents or chat turns, in place of the token that separates them. */
const BOUNDARY = "‖";
const SEPARATOR = /<\|(?:endoftext|end_of_text|begin_of_text|im_end)\|>|^(?:<\/?s>|<(?:bos|eos)>)$/g;

/** Draw each separator of documents or turns as `‖`. */
export function markBoundaries(text: string): string {
  return text.replace(SEPARATOR, BOUNDARY);
}

export function isBoundary(token: string): boolean {
  return markBoundaries(token) === BOUNDARY;
}

export const boundaryName = (token: string) => (token === "<|im_end|>" ? "end of turn" : "document boundary");

const SYMBOLS: Readonly<Record<string, string>> = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };
const INVISIBLE = /([ \n\t\r\u00a0]+)/;
/** Characters without width only, such as the joiner of an emoji or a variation selector. */
const WITHOUT_WIDTH = /^\p{Default_Ignorable_Code_Point}+$/u;

/**
 * Show invisible characters: `" may"` becomes ␣ and `may`. An empty token continues a multi-token character and
 * becomes `…`, one without width ◌, a document separator ‖.
 */
export function visibleParts(text: string): readonly VisiblePart[] {
  if (text === "") return [{ text: "…", isSymbol: true }];
  if (WITHOUT_WIDTH.test(text)) return [{ text: "◌", isSymbol: true }];
  if (isBoundary(text)) return [{ text: BOUNDARY, isSymbol: true }];
  return text
    .split(INVISIBLE)
    .filter((piece) => piece !== "")
    .map((piece) =>
      INVISIBLE.test(piece)
        ? { text: piece.replace(/./gs, (character) => SYMBOLS[character] ?? character), isSymbol: true }
        : { text: piece, isSymbol: false },
    );
}

export function visibleText(text: string): string {
  return visibleParts(text)
    .map((part) => part.text)
    .join("");
}

/** Screen-reader name of a token of white space only, or of a document separator; null for any other token. */
export function whitespaceName(text: string): string | null {
  if (isBoundary(text)) return boundaryName(text);
  if (text.trim() !== "") return null;
  return /[\n\r]/.test(text) ? "line break" : "space";
}

/** Put text on one line: line breaks become spaces, or ↵ if `showBreaks`; document separators become ‖. */
export function toOneLine(text: string, showBreaks: boolean): string {
  return markBoundaries(text)
    .replace(/\r\n?|\n/g, showBreaks ? "↵" : " ")
    .replace(/\t/g, showBreaks ? "⇥" : " ");
}

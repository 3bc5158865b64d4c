/** Tokens as text: what is drawn, and how a token is named where its exact characters matter. */

export interface TokenBody {
  /** White space in front, drawn outside the highlight. */
  readonly lead: string;
  readonly body: string;
}

/** Splits the leading spaces off; a token of spaces alone keeps its last one as body, so that it can be shaded. */
export function splitLead(text: string): TokenBody {
  const body = text.replace(/^ +/, "");
  if (body === "" && text !== "") return { lead: text.slice(0, -1), body: " " };
  return { lead: text.slice(0, text.length - body.length), body };
}

export interface VisiblePart {
  readonly text: string;
  /** A stand-in for something invisible, drawn dimmer. */
  readonly sign: boolean;
}

const SIGNS: Readonly<Record<string, string>> = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };
const INVISIBLE = /([ \n\t\r\u00a0]+)/;

/** Every character of a token made visible: `" may"` becomes ␣ and `may`. Empty tokens say that they continue. */
export function visibleParts(text: string): readonly VisiblePart[] {
  if (text === "") return [{ text: "…", sign: true }];
  return text
    .split(INVISIBLE)
    .filter((piece) => piece !== "")
    .map((piece) =>
      INVISIBLE.test(piece)
        ? { text: piece.replace(/./gs, (character) => SIGNS[character] ?? character), sign: true }
        : { text: piece, sign: false },
    );
}

export function visibleText(text: string): string {
  return visibleParts(text)
    .map((part) => part.text)
    .join("");
}

/** What a token of nothing but white space is called, for those who cannot see it; null for any other. */
export function blankName(text: string): string | null {
  if (text.trim() !== "") return null;
  return /[\n\r]/.test(text) ? "line break" : "space";
}

/** White space on one line: breaks become a space, or ↵ where they are to be seen. */
export function onOneLine(text: string, showBreaks: boolean): string {
  return text.replace(/\r\n?|\n/g, showBreaks ? "↵" : " ").replace(/\t/g, showBreaks ? "⇥" : " ");
}

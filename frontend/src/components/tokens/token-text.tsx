/** Tokens as running text. Leading spaces are outside the highlight; inactive tokens are plain text. */

import type { Piece } from "@/lib/text/kwic";
import { isBoundary, markBoundaries, splitLeadingSpace, toOneLine, whitespaceName } from "@/lib/text/token-text";

export type Shade = (piece: Piece) => string;

export interface TokenTextProps {
  readonly pieces: readonly Piece[];
  readonly shade: Shade;
  /** Position of the peak token, which is outlined. */
  readonly peak?: number | null;
  readonly locked?: number | null;
  /** `line`: a single line, line breaks as spaces or ↵. `block`: line breaks are kept. */
  readonly layout?: "line" | "block";
  readonly showBreaks?: boolean;
  /** Which tokens can be hovered, focused and locked; by default those with a value. */
  readonly isLive?: (piece: Piece) => boolean;
  /** The token in the tab order; arrow keys reach the others. */
  readonly tabStop?: number | null;
}

const hasValue = (piece: Piece) => piece.value !== null;

export function displayText(text: string, layout: "line" | "block", showBreaks: boolean): string {
  if (layout === "line") return toOneLine(text, showBreaks);
  const marked = markBoundaries(text);
  return showBreaks ? marked.replace(/\r\n?|\n/g, "↵\n") : marked;
}

/** On one line, a token of spaces is drawn, so that its shade is not an empty box. */
export const withDrawnSpace = (text: string) => (/^ +$/.test(text) ? `${text.slice(1)}␣` : text);

/** Text without a value: plain, or a boundary between documents. */
function PlainToken({ piece, text }: { readonly piece: Piece; readonly text: string }) {
  if (!isBoundary(piece.text)) return text;
  return (
    <span className="doc-end" title="document boundary">
      {text}
    </span>
  );
}

interface LiveTokenProps {
  readonly piece: Piece;
  readonly text: string;
  readonly className: string;
  readonly isLocked: boolean;
  readonly isTabStop: boolean;
}

function LiveToken({ piece, text, className, isLocked, isTabStop }: LiveTokenProps) {
  const { leadingSpace, body } = splitLeadingSpace(text);
  return (
    <>
      {leadingSpace}
      <span
        role="button"
        tabIndex={isTabStop ? 0 : -1}
        aria-pressed={isLocked}
        data-token={piece.index}
        aria-label={whitespaceName(piece.text) ?? undefined}
        className={`tok ${className}${isLocked ? " locked" : ""}${isBoundary(piece.text) ? " doc-end" : ""}`}
      >
        {body}
      </span>
    </>
  );
}

export function TokenText({ pieces, shade, peak = null, locked = null, tabStop = peak, ...rest }: TokenTextProps) {
  const { layout = "line", showBreaks = false, isLive = hasValue } = rest;
  return pieces.map((piece) => {
    const text = displayText(piece.text, layout, showBreaks);
    if (text === "" || !isLive(piece)) return <PlainToken key={piece.index} piece={piece} text={text} />;
    return (
      <LiveToken
        key={piece.index}
        piece={piece}
        text={layout === "line" ? withDrawnSpace(text) : text}
        className={shade(piece) + (piece.index === peak ? " peak" : "")}
        isLocked={piece.index === locked}
        isTabStop={piece.index === tabStop}
      />
    );
  });
}

/** Tokens as running text. Leading spaces stay outside the highlight; tokens that are not live are joined. */

import { Fragment } from "react";

import type { Piece } from "@/lib/kwic";
import { blankName, onOneLine, splitLead } from "@/lib/token-text";

export type Shade = (piece: Piece) => string;

export interface TokenTextProps {
  readonly pieces: readonly Piece[];
  readonly shade: Shade;
  /** Position of the token that is outlined as the strongest. */
  readonly peak?: number | null;
  readonly locked?: number | null;
  /** `line`: one line, breaks as spaces or ↵. `block`: breaks are breaks. */
  readonly layout?: "line" | "block";
  readonly showBreaks?: boolean;
  /** Which tokens can be hovered, focused and locked; those with a value by default. */
  readonly isLive?: (piece: Piece) => boolean;
  /** The one token that the Tab key reaches; arrows reach the others. */
  readonly tabStop?: number | null;
}

const hasValue = (piece: Piece) => piece.value !== null;

export function drawnText(text: string, layout: "line" | "block", showBreaks: boolean): string {
  if (layout === "line") return onOneLine(text, showBreaks);
  return showBreaks ? text.replace(/\r\n?|\n/g, "↵\n") : text;
}

interface LiveTokenProps {
  readonly piece: Piece;
  readonly text: string;
  readonly className: string;
  readonly isLocked: boolean;
  readonly isTabStop: boolean;
}

export function LiveToken({ piece, text, className, isLocked, isTabStop }: LiveTokenProps) {
  const { lead, body } = splitLead(text);
  return (
    <>
      {lead}
      <span
        role="button"
        tabIndex={isTabStop ? 0 : -1}
        aria-pressed={isLocked}
        data-token={piece.index}
        aria-label={blankName(piece.text) ?? undefined}
        className={`tok ${className}${isLocked ? " locked" : ""}`}
      >
        {body}
      </span>
    </>
  );
}

export function TokenText({ pieces, shade, peak = null, locked = null, tabStop = peak, ...rest }: TokenTextProps) {
  const { layout = "line", showBreaks = false, isLive = hasValue } = rest;
  return pieces.map((piece) => {
    const text = drawnText(piece.text, layout, showBreaks);
    if (text === "" || !isLive(piece)) return <Fragment key={piece.index}>{text}</Fragment>;
    return (
      <LiveToken
        key={piece.index}
        piece={piece}
        text={text}
        className={shade(piece) + (piece.index === peak ? " peak" : "")}
        isLocked={piece.index === locked}
        isTabStop={piece.index === tabStop}
      />
    );
  });
}

/** Tokens as running text, which can be hovered, locked and reached with arrow keys. */

import type { FocusEvent, KeyboardEvent, MouseEvent, PointerEvent, ReactNode } from "react";

import type { Example } from "@/api/types";
import { sequentialClass } from "@/lib/scales/colour-scale";
import { type Piece, pieces } from "@/lib/text/kwic";
import { isBoundary, markBoundaries, splitLeadingSpace, toOneLine, whitespaceName } from "@/lib/text/token-text";

import { hideTip, showTip } from "./tip-layer";

export type Shade = (piece: Piece) => string;

export interface TokenTextProps {
  /** Those with a value can be hovered, focused and locked. */
  readonly pieces: readonly Piece[];
  readonly shade: Shade;
  /** Position of the peak token, which is outlined. */
  readonly peak?: number | null;
  readonly locked?: number | null;
  /** `line`: a single line, line breaks as spaces or ↵. `block`: line breaks are kept. */
  readonly layout?: "line" | "block";
  readonly showBreaks?: boolean;
  /** The token in the tab order; arrow keys reach the others. */
  readonly tabStop?: number | null;
}

export function displayText(text: string, layout: "line" | "block", showBreaks: boolean): string {
  if (layout === "line") return toOneLine(text, showBreaks);
  const marked = markBoundaries(text);
  return showBreaks ? marked.replace(/\r\n?|\n/g, "↵\n") : marked;
}

/** On one line, a token of spaces is drawn, so that its shade is not an empty box. */
export const withDrawnSpace = (text: string) => (/^ +$/.test(text) ? `${text.slice(1)}␣` : text);

/** Its arrows fill their width, and would touch. */
const isBreak = (text: string) => /^↵+\n?$/.test(text);

/** Text without a value: plain, or a boundary between documents. */
function PlainToken({ piece, text }: { readonly piece: Piece; readonly text: string }) {
  if (isBreak(text)) return <span className="break">{text}</span>;
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
        className={`tok ${className}${isLocked ? " locked" : ""}${isBoundary(piece.text) ? " doc-end" : ""}${isBreak(text) ? " break" : ""}`}
      >
        {body}
      </span>
    </>
  );
}

export function TokenText({ pieces, shade, peak = null, locked = null, tabStop = peak, ...rest }: TokenTextProps) {
  const { layout = "line", showBreaks = false } = rest;
  return pieces.map((piece) => {
    const text = displayText(piece.text, layout, showBreaks);
    if (text === "" || piece.value === null) return <PlainToken key={piece.index} piece={piece} text={text} />;
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

interface ShadedTextProps {
  readonly example: Example;
  /** Tokens before and after the peak. */
  readonly before: number;
  readonly after: number;
  /** End of the colour scale; by default the example's own activation. */
  readonly largest?: number;
}

/** Position of the first word within `before` tokens of the peak and in its document. */
function firstWord({ tokens, position }: Example, before: number): number {
  const from = Math.max(0, position - before);
  const start = from + tokens.slice(from, position).findLastIndex(isBoundary) + 1;
  if (start > from) return start;
  const word = tokens
    .slice(from, position)
    .findIndex((text, i) => text.startsWith(" ") || tokens[from + i - 1] === "\n");
  return from + Math.max(0, word);
}

export function ShadedText({ example, before, after, largest = example.activation }: ShadedTextProps) {
  const { tokens, position } = example;
  const next = tokens.slice(position + after + 1).findIndex((text) => !/^[\p{L}\p{N}]/u.test(text));
  return pieces(example)
    .slice(firstWord(example, before), next < 0 ? undefined : position + after + 1 + next)
    .map((piece) => {
      const { leadingSpace, body } = splitLeadingSpace(toOneLine(piece.text, true));
      const shade = sequentialClass(piece.value ?? 0, largest);
      const peak = piece.index === example.position ? " peak" : "";
      return (
        <span key={piece.index}>
          {leadingSpace}
          {shade === "" ? body : <span className={`tok ${shade}${peak}`}>{body}</span>}
        </span>
      );
    });
}

interface TokenEvents {
  /** Finds them. */
  readonly selector: string;
  /** Receives the one under the pointer or focus, null when it leaves. */
  readonly onEnter: (token: HTMLElement | null) => void;
  readonly onPress: (token: HTMLElement) => void;
  /** Where an arrow key leads inside the element. */
  readonly next: (token: HTMLElement, key: string, inside: HTMLElement) => HTMLElement | undefined;
}

export function tokenEvents({ selector, onEnter, onPress, next }: TokenEvents) {
  const closest = (target: EventTarget) => (target instanceof Element ? target.closest<HTMLElement>(selector) : null);
  const leave = () => onEnter(null);
  return {
    onPointerOver: ({ target }: PointerEvent) => onEnter(closest(target)),
    onPointerLeave: leave,
    onFocus: ({ target }: FocusEvent) => onEnter(closest(target)),
    onBlur: leave,
    onClick: ({ target }: MouseEvent) => {
      const token = closest(target);
      if (token !== null) onPress(token);
    },
    onKeyDown: (event: KeyboardEvent<HTMLElement>) => {
      const token = closest(event.target);
      if (token === null) return;
      const moved = next(token, event.key, event.currentTarget);
      // A button is pressed by the browser.
      const isPressed = token.tagName !== "BUTTON" && (event.key === "Enter" || event.key === " ");
      if (moved === undefined && !isPressed) return;
      event.preventDefault();
      if (isPressed) onPress(token);
      else moved?.focus();
    },
  };
}

export interface TokenHandlers {
  /** Tooltip content; null for no tooltip. */
  readonly tip?: ((piece: Piece) => ReactNode) | undefined;
  /** Receives the token under the pointer or focus, null when it leaves. */
  readonly onHover?: ((piece: Piece | null) => void) | undefined;
  readonly onLock?: ((piece: Piece) => void) | undefined;
}

interface TokenGroupProps extends TokenHandlers {
  readonly label: string;
  readonly pieces: readonly Piece[];
  readonly className?: string;
  readonly children: ReactNode;
}

/** The next or previous focusable token that is not cut off by the edges of the row. */
function neighbour(token: HTMLElement, key: string, group: HTMLElement): HTMLElement | undefined {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (step === undefined) return undefined;
  const { left, right } = group.getBoundingClientRect();
  const all = [...group.querySelectorAll<HTMLElement>("[data-token]")].filter((candidate) => {
    const box = candidate.getBoundingClientRect();
    return box.right > left && box.left < right;
  });
  return all[all.indexOf(token) + step];
}

export function TokenGroup({ label, pieces, className, children, tip, onHover, onLock }: TokenGroupProps) {
  const pieceOf = (token: HTMLElement | null) =>
    token === null ? undefined : pieces.find((piece) => String(piece.index) === token.dataset.token);
  const events = tokenEvents({
    selector: "[data-token]",
    onEnter: (token) => {
      const piece = pieceOf(token);
      const content = piece === undefined ? null : (tip?.(piece) ?? null);
      onHover?.(piece ?? null);
      if (token === null || content === null) hideTip();
      else showTip(token, content);
    },
    onPress: (token) => {
      const piece = pieceOf(token);
      if (piece !== undefined) onLock?.(piece);
    },
    next: neighbour,
  });
  return (
    <div role="group" aria-label={label} className={className} {...events}>
      {children}
    </div>
  );
}

interface TokenStripProps extends TokenTextProps, TokenHandlers {
  readonly label: string;
  readonly className?: string;
}

export function TokenStrip({ label, className = "text", tip, onHover, onLock, ...text }: TokenStripProps) {
  const first = text.pieces.find(({ value }) => value !== null)?.index ?? null;
  const tabStop = text.tabStop ?? text.locked ?? text.peak ?? first;
  return (
    <TokenGroup label={label} className={className} pieces={text.pieces} tip={tip} onHover={onHover} onLock={onLock}>
      <TokenText layout="block" {...text} tabStop={tabStop} />
    </TokenGroup>
  );
}

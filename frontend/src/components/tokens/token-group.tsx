/** Pointer, focus and keyboard handling for all tokens inside: hover previews, click locks, arrow keys move. */

import type { FocusEvent, HTMLAttributes, KeyboardEvent, MouseEvent, PointerEvent, ReactNode } from "react";

import type { Piece } from "@/lib/text/kwic";

import { useTips } from "./tip-layer";

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

function closestToken(target: EventTarget): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-token]") : null;
}

/** The next or previous focusable token that is not cut off by the edges of the row. */
function neighbour(token: HTMLElement, group: HTMLElement, step: 1 | -1): HTMLElement | undefined {
  const { left, right } = group.getBoundingClientRect();
  const all = [...group.querySelectorAll<HTMLElement>("[data-token]")].filter((candidate) => {
    const box = candidate.getBoundingClientRect();
    return box.right > left && box.left < right;
  });
  return all[all.indexOf(token) + step];
}

type GroupProps = Pick<
  HTMLAttributes<HTMLElement>,
  "onPointerOver" | "onPointerLeave" | "onFocus" | "onBlur" | "onClick" | "onKeyDown"
>;

function useTokenEvents(pieces: readonly Piece[], { tip, onHover, onLock }: TokenHandlers): GroupProps {
  const tips = useTips();
  const pieceOf = (token: HTMLElement | null) =>
    token === null ? undefined : pieces.find((piece) => String(piece.index) === token.dataset.token);
  const enter = (target: EventTarget) => {
    const token = closestToken(target);
    const piece = pieceOf(token);
    const content = piece === undefined ? null : (tip?.(piece) ?? null);
    onHover?.(piece ?? null);
    if (token === null || content === null) tips.hide();
    else tips.show(token, content);
  };
  const leave = () => {
    onHover?.(null);
    tips.hide();
  };
  const lock = (target: EventTarget): boolean => {
    const piece = pieceOf(closestToken(target));
    if (piece === undefined || onLock === undefined) return false;
    onLock(piece);
    return true;
  };
  return {
    onPointerOver: (event: PointerEvent) => enter(event.target),
    onPointerLeave: leave,
    onFocus: (event: FocusEvent) => enter(event.target),
    onBlur: leave,
    onClick: (event: MouseEvent) => void lock(event.target),
    onKeyDown: (event: KeyboardEvent<HTMLElement>) => {
      const token = closestToken(event.target);
      if (token === null) return;
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key] as 1 | -1 | undefined;
      if (step !== undefined) neighbour(token, event.currentTarget, step)?.focus();
      else if (event.key !== "Enter" && event.key !== " ") return;
      else if (!lock(token)) return;
      event.preventDefault();
    },
  };
}

export function TokenGroup({ label, pieces, className, children, ...handlers }: TokenGroupProps) {
  const events = useTokenEvents(pieces, handlers);
  return (
    <div role="group" aria-label={label} className={className} {...events}>
      {children}
    </div>
  );
}

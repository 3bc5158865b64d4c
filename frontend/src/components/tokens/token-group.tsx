/** Pointer, focus and keys for all tokens inside: hover previews, click locks, arrows go from token to token. */

import type { FocusEvent, HTMLAttributes, KeyboardEvent, MouseEvent, PointerEvent, ReactNode } from "react";

import type { Piece } from "@/lib/kwic";

import { useTips } from "./tip-layer";

export interface TokenHandlers {
  /** What the tooltip says; none where it gives null. */
  readonly tip?: ((piece: Piece) => ReactNode) | undefined;
  /** The token under the pointer or in focus, null once it is left. */
  readonly onHover?: ((piece: Piece | null) => void) | undefined;
  readonly onLock?: ((piece: Piece) => void) | undefined;
}

interface TokenGroupProps extends TokenHandlers {
  readonly label: string;
  readonly pieces: readonly Piece[];
  readonly className?: string;
  readonly children: ReactNode;
}

function tokenOf(target: EventTarget): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-token]") : null;
}

/** The next live token, or the one before; those that lie cut away beyond the edges do not count. */
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
    const token = tokenOf(target);
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
    const piece = pieceOf(tokenOf(target));
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
      const token = tokenOf(event.target);
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

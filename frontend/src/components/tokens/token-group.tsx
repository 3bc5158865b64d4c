/** Pointer, focus and keyboard handling for all tokens inside: hover previews, click locks, arrow keys move. */

import type { ReactNode } from "react";

import type { Piece } from "@/lib/text/kwic";

import { useTips } from "./tip-layer";
import { tokenEvents } from "./token-events";

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
  const tips = useTips();
  const pieceOf = (token: HTMLElement | null) =>
    token === null ? undefined : pieces.find((piece) => String(piece.index) === token.dataset.token);
  const events = tokenEvents({
    selector: "[data-token]",
    onEnter: (token) => {
      const piece = pieceOf(token);
      const content = piece === undefined ? null : (tip?.(piece) ?? null);
      onHover?.(piece ?? null);
      if (token === null || content === null) tips.hide();
      else tips.show(token, content);
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

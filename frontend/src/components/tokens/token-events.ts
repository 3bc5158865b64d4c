/** Pointer, focus and keyboard handlers of all tokens or cells inside one element. */

import type { FocusEvent, KeyboardEvent, MouseEvent, PointerEvent } from "react";

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

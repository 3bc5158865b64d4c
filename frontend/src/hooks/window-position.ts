/**
 * Scroll position and height of the window, read once per scroll or resize. Reading them after rows have changed
 * would force an extra layout.
 */

import { pageScale } from "@/lib/browser/presentation";

interface WindowPosition {
  /** Pixels of the page above the window. */
  readonly top: number;
  readonly height: number;
}

const EVENTS = ["scroll", "resize"] as const;
const listeners = new Set<() => void>();
let position: WindowPosition = { top: 0, height: 0 };

function readPosition(): void {
  position = { top: window.scrollY / pageScale(), height: window.innerHeight / pageScale() };
}

function notify(): void {
  readPosition();
  for (const listener of listeners) listener();
}

/** Position at the last scroll or resize; only current while somebody is subscribed. */
export const windowPosition = (): WindowPosition => position;

/** Call `listener` after every scroll or resize. Returns the unsubscribe function. */
export function subscribeWindowPosition(listener: () => void): () => void {
  readPosition();
  if (listeners.size === 0) for (const name of EVENTS) window.addEventListener(name, notify, { passive: true });
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) for (const name of EVENTS) window.removeEventListener(name, notify);
  };
}

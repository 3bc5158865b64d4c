/** The rows of a long table that are on screen. */

import { type ReactNode, useDeferredValue, useEffect, useState, useSyncExternalStore } from "react";

import { pageScale } from "@/lib/browser/presentation";

/**
 * Virtual scrolling of equally high rows, one block of rows at a time, so that scrolling within a block does not
 * re-render.
 */

/** Rows per block. */
export const BLOCK_ROWS = 4;
/** Extra rows above and below the screen, so that fast scrolling does not show blank rows. */
const OVERSCAN_ROWS = 8;

/** The block at the top of the screen; `above` is the number of pixels of the table above the screen (negative: none). */
export function blockAt(above: number, rowHeight: number): number {
  return Math.max(0, Math.floor(above / (rowHeight * BLOCK_ROWS)));
}

/** The rows to render, of `count`, on a screen of `height` pixels whose top is in `block`; `end` is exclusive. */
export function visibleRows(block: number, count: number, rowHeight: number, height: number) {
  const top = block * BLOCK_ROWS;
  const bottom = top + BLOCK_ROWS + Math.ceil(height / rowHeight);
  return { first: Math.max(0, Math.min(count, top) - OVERSCAN_ROWS), end: Math.min(count, bottom + OVERSCAN_ROWS) };
}

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

interface VirtualRowsProps {
  readonly count: number;
  readonly rowHeight: number;
  readonly onNearEnd: () => void;
  readonly children: (index: number) => ReactNode;
}

function Spacer({ height }: { readonly height: number }) {
  return height > 0 ? (
    <tr aria-hidden="true" className="spacer">
      <td style={{ height }} />
    </tr>
  ) : null;
}

/** Distance of the element from the top of the page in pixels, updated when the layout above changes. */
function useDistanceFromTop(element: HTMLElement | null): number {
  const [top, setTop] = useState(0);
  useEffect(() => {
    if (element === null) return undefined;
    const observer = new ResizeObserver(() =>
      setTop((element.getBoundingClientRect().top + window.scrollY) / pageScale()),
    );
    observer.observe(document.body);
    return () => observer.disconnect();
  }, [element]);
  return top;
}

/** Number of rows before the end at which more are requested. */
const PREFETCH_ROWS = 30;

export function VirtualRows({ count, rowHeight, onNearEnd, children }: VirtualRowsProps) {
  const [body, setBody] = useState<HTMLTableSectionElement | null>(null);
  const distance = useDistanceFromTop(body);
  const targetBlock = useSyncExternalStore(subscribeWindowPosition, () =>
    blockAt(windowPosition().top - distance, rowHeight),
  );
  // Deferred: the scrolling frame repaints existing rows, and the overscan rows cover until new ones render.
  const block = useDeferredValue(targetBlock);
  const height = useSyncExternalStore(subscribeWindowPosition, () => windowPosition().height);
  const { first, end } = visibleRows(block, count, rowHeight, height);
  const isNearEnd = end + PREFETCH_ROWS >= count;
  useEffect(() => {
    if (isNearEnd) onNearEnd();
  }, [isNearEnd, count, onNearEnd]);
  return (
    <tbody ref={setBody}>
      <Spacer height={first * rowHeight} />
      {Array.from({ length: end - first }, (_, i) => children(first + i))}
      <Spacer height={(count - end) * rowHeight} />
    </tbody>
  );
}

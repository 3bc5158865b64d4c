/** Virtualised table rows of equal height. Requests more rows near the end. */

import { type ReactNode, useDeferredValue, useEffect, useState, useSyncExternalStore } from "react";

import { subscribeWindowPosition, windowPosition } from "@/hooks/window-position";
import { pageScale } from "@/lib/browser/presentation";
import { blockAt, visibleRows } from "@/lib/rows/visible-rows";

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

/** Table rows of one height, of which only those on screen exist; asks for more as the end comes near. */

import { type ReactNode, useDeferredValue, useEffect, useState, useSyncExternalStore } from "react";

import { blockAt, rowsInSight } from "@/lib/rows-in-sight";

import { followOutlook, outlook } from "../outlook";

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

/** Where the element begins on the page, in pixels; followed as what stands above it grows and shrinks. */
function useDistanceFromTop(element: HTMLElement | null): number {
  const [top, setTop] = useState(0);
  useEffect(() => {
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setTop(element.getBoundingClientRect().top + window.scrollY));
    observer.observe(document.body);
    return () => observer.disconnect();
  }, [element]);
  return top;
}

/** So many rows before the end more of them are asked for. */
const AHEAD = 30;

export function VirtualRows({ count, rowHeight, onNearEnd, children }: VirtualRowsProps) {
  const [body, setBody] = useState<HTMLTableSectionElement | null>(null);
  const distance = useDistanceFromTop(body);
  const sought = useSyncExternalStore(followOutlook, () => blockAt(outlook().top - distance, rowHeight));
  // The frame that moves the page draws what is there; rows to come wait for the next, which the rows beyond the edge allow.
  const block = useDeferredValue(sought);
  const height = useSyncExternalStore(followOutlook, () => outlook().height);
  const { first, end } = rowsInSight(block, count, rowHeight, height);
  const isNearEnd = end + AHEAD >= count;
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

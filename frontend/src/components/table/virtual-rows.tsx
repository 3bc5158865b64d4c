/** Table rows of one height, of which only those on screen exist; asks for more as the end comes near. */

import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useState } from "react";

interface VirtualRowsProps {
  readonly count: number;
  readonly rowHeight: number;
  readonly onNearEnd: () => void;
  readonly children: (index: number) => ReactNode;
}

const OVERSCAN = 12;

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

export function VirtualRows({ count, rowHeight, onNearEnd, children }: VirtualRowsProps) {
  const [body, setBody] = useState<HTMLTableSectionElement | null>(null);
  const scrollMargin = useDistanceFromTop(body);
  const virtualizer = useWindowVirtualizer({
    count,
    estimateSize: () => rowHeight,
    overscan: OVERSCAN,
    scrollMargin,
  });
  const items = virtualizer.getVirtualItems();
  const first = items[0];
  const last = items.at(-1);
  const isNearEnd = last === undefined || last.index >= count - OVERSCAN;
  useEffect(() => {
    if (isNearEnd) onNearEnd();
  }, [isNearEnd, count, onNearEnd]);
  return (
    <tbody ref={setBody}>
      <Spacer height={first === undefined ? 0 : first.start - scrollMargin} />
      {items.map((item) => children(item.index))}
      <Spacer height={last === undefined ? 0 : virtualizer.getTotalSize() - (last.end - scrollMargin)} />
    </tbody>
  );
}

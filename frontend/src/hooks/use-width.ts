/** Inner width of an element in pixels, known before it is painted. */

import { type RefObject, useLayoutEffect, useState } from "react";

export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const { current } = element;
    if (current === null) return undefined;
    const update = () => setWidth(current.clientWidth);
    // An observer reports only after the first paint.
    update();
    const observer = new ResizeObserver(update);
    observer.observe(current);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

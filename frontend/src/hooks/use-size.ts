/** Sizes of the window and of elements. */

import { type RefObject, useLayoutEffect, useState, useSyncExternalStore } from "react";

import { pageScale } from "@/lib/browser/presentation";

const WIDTH = 720;

function subscribe(listener: () => void): () => void {
  window.addEventListener("resize", listener);
  return () => window.removeEventListener("resize", listener);
}

/** The largest of these widths that the window has; 0 if it has none. */
export const useRoom = (widths: readonly number[]): number =>
  useSyncExternalStore(subscribe, () => Math.max(0, ...widths.filter((it) => window.innerWidth >= it * pageScale())));

export function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => window.innerWidth <= WIDTH * pageScale());
}

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

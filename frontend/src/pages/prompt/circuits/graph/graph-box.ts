/** The scrolling box of the graph: its width, what it hides, and the selected node kept in sight. */

import { type RefObject, useLayoutEffect, useRef, useState } from "react";

/** The width of the box of the graph; 0 until it is measured. */
export function useBoxWidth(box: RefObject<HTMLElement | null>): number {
  const [available, setAvailable] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    // Measured before the first paint, so that the graph does not shrink after it.
    // eslint-disable-next-line react-hooks/set-state-in-effect -- an observer would report it one frame too late
    setAvailable(element.clientWidth);
    const observer = new ResizeObserver(() => setAvailable(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, [box]);
  return available;
}

/** Whether a part of the graph is hidden on the left of its box. */
export function useHiddenLeft(box: RefObject<HTMLElement | null>) {
  const [isHidden, setHidden] = useState(false);
  const update = () => setHidden((box.current?.scrollLeft ?? 0) > 1);
  return { isHidden, update };
}

/** Scrolls sideways, so that the page stays where it is. */
export function centreSelected(box: HTMLElement | null): void {
  const node = box?.querySelector(".cnode.selected");
  if (box === null || node == null) return;
  const [outer, inner] = [box.getBoundingClientRect(), node.getBoundingClientRect()];
  box.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
}

/** The status line and the tray cover this much at the bottom of the window, on a phone the tabs too. */
const COVERED_BELOW = 110;

/** Scrolls the page after zooming, only if the selected node would be out of sight. */
export function useSelectedInSight(box: RefObject<HTMLElement | null>, zoom: number | null): void {
  const last = useRef(zoom);
  useLayoutEffect(() => {
    if (last.current === zoom) return;
    last.current = zoom;
    const node = box.current?.querySelector(".cnode.selected");
    if (node == null) return;
    const { top, bottom } = node.getBoundingClientRect();
    if (top < 0 || bottom > window.innerHeight - COVERED_BELOW)
      node.scrollIntoView({ block: "center", inline: "center" });
  }, [box, zoom]);
}

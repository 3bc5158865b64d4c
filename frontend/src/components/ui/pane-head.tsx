/** Parts of panes: the heading, and a box that scrolls sideways, with a line that says so while columns are hidden. */

import { type ReactNode, type Ref, useCallback, useImperativeHandle, useLayoutEffect, useRef, useState } from "react";

import type { TermId } from "@/api/types";
import { Term } from "@/components/terms/term";

interface PaneHeadProps {
  readonly title: ReactNode;
  /** What the title means. */
  readonly term?: TermId;
  readonly note?: ReactNode;
  readonly wrap?: boolean;
  /** At the other end of the line. */
  readonly children?: ReactNode;
}

/** The heading of a pane. */
export function PaneHead({ title, term, note, wrap = false, children }: PaneHeadProps) {
  return (
    <div className={wrap ? "row pane-h wrap" : "row pane-h"}>
      <h2>{term === undefined ? title : <Term id={term}>{title}</Term>}</h2>
      {note !== undefined && <span className="note">{note}</span>}
      <span className="grow" />
      {children}
    </div>
  );
}

interface ScrollBoxProps {
  readonly className: string;
  readonly label: string;
  /** Below the box. */
  readonly note?: ReactNode;
  readonly children: ReactNode;
  readonly ref?: Ref<HTMLDivElement>;
  readonly onScroll?: () => void;
}

export function ScrollBox({ className, label, note = false, children, ref, onScroll }: ScrollBoxProps) {
  const box = useRef<HTMLDivElement>(null);
  useImperativeHandle<HTMLDivElement | null, HTMLDivElement | null>(ref, () => box.current, []);
  const [cut, setCut] = useState("");
  const update = useCallback(() => {
    if (box.current === null) return;
    const { scrollLeft, clientWidth, scrollWidth } = box.current;
    const isCut = { left: scrollLeft > 1, right: scrollWidth - clientWidth - scrollLeft > 1 };
    setCut((["left", "right"] as const).filter((side) => isCut[side]).join(" and "));
    onScroll?.();
  }, [onScroll]);
  useLayoutEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(update);
    observer.observe(box.current);
    for (const child of box.current.children) observer.observe(child);
    // Other rows or columns may leave both sizes as they are.
    const contents = new MutationObserver(update);
    contents.observe(box.current, { childList: true, characterData: true, subtree: true });
    return () => {
      observer.disconnect();
      contents.disconnect();
    };
  }, [update]);
  return (
    <>
      <div
        ref={box}
        className={className}
        data-cut={cut.endsWith("right") || undefined}
        data-scrolled={cut.startsWith("left") || undefined}
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
        tabIndex={0}
        role="region"
        aria-label={label}
        onScroll={update}
      >
        {children}
      </div>
      <p className="scroll-cue dim">{cut !== "" && `More columns to the ${cut}: scroll sideways`}</p>
      {note !== false && <p className="dim scroll-note">{note}</p>}
    </>
  );
}

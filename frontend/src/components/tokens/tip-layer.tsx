/**
 * A single tooltip shared by all tokens of the page. Thousands of tokens stay plain elements, and moving the pointer
 * re-renders only the tooltip.
 */

import { type ReactNode, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { useOverlayPosition } from "react-aria";
import { createPortal } from "react-dom";
import { useLocation } from "react-router";

import { overlayContainer } from "@/components/ui/overlay-portal";
import { useShortcut } from "@/hooks/use-shortcut";
import { createListeners } from "@/lib/browser/stores";

/** `hover` tooltips close on Escape. `locked` ones belong to a lock and close when it is released. */
type TipKind = "hover" | "locked";

interface Tip {
  /** What it describes, and what it is placed below if it has the room there. */
  readonly anchor: Element;
  readonly place: Element;
  readonly content: ReactNode;
  readonly id: number;
  readonly kind: TipKind;
}

const TIP_ID = "token-tip";
const { notify, subscribe } = createListeners();
let tip: Tip | null = null;
let count = 0;

function set(next: Tip | null): void {
  tip?.anchor.removeAttribute("aria-describedby");
  next?.anchor.setAttribute("aria-describedby", TIP_ID);
  tip = next;
  notify();
}

export function showTip(anchor: Element, content: ReactNode, kind: TipKind = "hover", place = anchor): void {
  count += 1;
  set({ anchor, place, content, id: count, kind });
}

export function hideTip(): void {
  if (tip !== null) set(null);
}

function OpenTip({ anchor, place, content }: Tip) {
  const overlay = useRef<HTMLDivElement>(null);
  const arrow = useRef<HTMLSpanElement>(null);
  const [at, setAt] = useState(place);
  const target = useMemo(() => ({ current: at }), [at]);
  const { overlayProps, arrowProps, placement } = useOverlayPosition({
    targetRef: target,
    overlayRef: overlay,
    arrowRef: arrow,
    placement: "bottom",
    offset: 9,
    isOpen: true,
    onClose: hideTip,
  });
  if (placement === "top" && at !== anchor) setAt(anchor);
  return (
    <div ref={overlay} id={TIP_ID} role="tooltip" className="tip" data-placement={placement} {...overlayProps}>
      {at === anchor && <span ref={arrow} className="tip-arrow" {...arrowProps} />}
      {content}
    </div>
  );
}

export function TipLayer() {
  const shown = useSyncExternalStore(subscribe, () => tip);
  // A link that is followed goes with its page, and reports no leaving pointer.
  const { pathname } = useLocation();
  useEffect(() => hideTip, [pathname]);
  useShortcut("release", hideTip, shown?.kind === "hover");
  return shown === null ? null : createPortal(<OpenTip key={shown.id} {...shown} />, overlayContainer());
}

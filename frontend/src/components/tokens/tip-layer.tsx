/**
 * A single tooltip shared by all tokens of the page. Thousands of tokens stay plain elements, and moving the pointer
 * re-renders only the tooltip.
 */

import {
  createContext,
  type ReactNode,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { useOverlayPosition } from "react-aria";
import { createPortal } from "react-dom";
import { useLocation } from "react-router";

import { overlayContainer } from "@/components/ui/overlay-portal";
import { useShortcut } from "@/hooks/use-shortcut";
import { createListeners } from "@/lib/browser/listeners";

interface Tip {
  /** What it describes, and what it is placed below. */
  readonly anchor: Element;
  readonly place: Element;
  readonly content: ReactNode;
  readonly id: number;
  readonly kind: TipKind;
}

/** `hover` tooltips close on Escape. `locked` ones belong to a lock and close when it is released. */
type TipKind = "hover" | "locked";

export interface Tips {
  readonly show: (anchor: Element, content: ReactNode, kind?: TipKind, place?: Element) => void;
  readonly hide: () => void;
}

interface TipStore extends Tips {
  readonly read: () => Tip | null;
  readonly subscribe: (listener: () => void) => () => void;
}

const TIP_ID = "token-tip";
const TipContext = createContext<TipStore | null>(null);

function createTipStore(): TipStore {
  const { notify, subscribe } = createListeners();
  let tip: Tip | null = null;
  let count = 0;
  const set = (next: Tip | null) => {
    tip?.anchor.removeAttribute("aria-describedby");
    next?.anchor.setAttribute("aria-describedby", TIP_ID);
    tip = next;
    notify();
  };
  return {
    read: () => tip,
    show: (anchor, content, kind = "hover", place = anchor) => {
      count += 1;
      set({ anchor, place, content, id: count, kind });
    },
    hide: () => {
      if (tip !== null) set(null);
    },
    subscribe,
  };
}

function OpenTip({ tip, onClose }: { readonly tip: Tip; readonly onClose: () => void }) {
  const overlay = useRef<HTMLDivElement>(null);
  const arrow = useRef<HTMLSpanElement>(null);
  const target = useMemo(() => ({ current: tip.place }), [tip.place]);
  const { overlayProps, arrowProps, placement } = useOverlayPosition({
    targetRef: target,
    overlayRef: overlay,
    arrowRef: arrow,
    placement: "bottom",
    offset: 9,
    isOpen: true,
    onClose,
  });
  return (
    <div ref={overlay} id={TIP_ID} role="tooltip" className="tip" data-placement={placement} {...overlayProps}>
      <span ref={arrow} className="tip-arrow" {...arrowProps} />
      {tip.content}
    </div>
  );
}

function TipView({ store }: { readonly store: TipStore }) {
  const tip = useSyncExternalStore(store.subscribe, store.read);
  // A link that is followed goes with its page, and reports no leaving pointer.
  const { pathname } = useLocation();
  useEffect(() => store.hide, [pathname, store]);
  useShortcut("release", store.hide, tip?.kind === "hover");
  return tip === null
    ? null
    : createPortal(<OpenTip key={tip.id} tip={tip} onClose={store.hide} />, overlayContainer());
}

export function TipProvider({ children }: { readonly children: ReactNode }) {
  const [store] = useState(createTipStore);
  return (
    <TipContext value={store}>
      {children}
      <TipView store={store} />
    </TipContext>
  );
}

export function useTips(): Tips {
  const store = useContext(TipContext);
  if (store === null) throw new Error("useTips needs a TipProvider above it");
  return store;
}

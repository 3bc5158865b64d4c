/** One tooltip for all tokens of the page: thousands of tokens stay plain elements, and nothing but the tooltip
 *  renders again when the pointer moves. */

import { createContext, type ReactNode, useContext, useState, useSyncExternalStore } from "react";
import { OverlayArrow, Tooltip } from "react-aria-components";

interface Tip {
  readonly anchor: Element;
  readonly content: ReactNode;
  readonly id: number;
}

export interface Tips {
  readonly show: (anchor: Element, content: ReactNode) => void;
  readonly hide: () => void;
}

interface TipStore extends Tips {
  readonly read: () => Tip | null;
  readonly subscribe: (listener: () => void) => () => void;
}

const TIP_ID = "token-tip";
const TipContext = createContext<TipStore | null>(null);

function createTipStore(): TipStore {
  const listeners = new Set<() => void>();
  let tip: Tip | null = null;
  let count = 0;
  const set = (next: Tip | null) => {
    tip?.anchor.removeAttribute("aria-describedby");
    next?.anchor.setAttribute("aria-describedby", TIP_ID);
    tip = next;
    for (const listener of listeners) listener();
  };
  return {
    read: () => tip,
    show: (anchor, content) => {
      count += 1;
      set({ anchor, content, id: count });
    },
    hide: () => {
      if (tip !== null) set(null);
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

function TipView({ store }: { readonly store: TipStore }) {
  const tip = useSyncExternalStore(store.subscribe, store.read);
  if (tip === null) return null;
  return (
    <Tooltip
      key={tip.id}
      className="tip"
      isOpen
      triggerRef={{ current: tip.anchor }}
      placement="bottom"
      offset={9}
      onOpenChange={(open) => {
        if (!open) store.hide();
      }}
    >
      <OverlayArrow className="tip-arrow">
        <svg width="12" height="6" viewBox="0 0 12 6">
          <path d="M0 6 6 0l6 6" />
        </svg>
      </OverlayArrow>
      <div id={TIP_ID}>{tip.content}</div>
    </Tooltip>
  );
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

/** Keyboard shortcuts. The handler registered last runs. While a dialog, a popover or a menu is open, only Escape has one. */

import { createContext, type ReactNode, useContext, useEffect, useLayoutEffect, useMemo, useRef } from "react";

import { type ShortcutId, shortcutOf } from "@/lib/browser/shortcuts";

interface Entry {
  readonly id: ShortcutId;
  readonly run: () => void;
}

interface Registry {
  readonly add: (entry: Entry) => () => void;
}

const ShortcutsContext = createContext<Registry | null>(null);

/** Whether a key press belongs to a text field. Escape works in text fields too. */
function isTyping(event: KeyboardEvent): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement) || event.key === "Escape") return false;
  if (target instanceof HTMLInputElement) return target.type !== "range" && target.type !== "checkbox";
  return target instanceof HTMLTextAreaElement || target.isContentEditable;
}

/** Whether a dialog, a popover or a menu is open. Its keys are its own, also in the moment before it has taken the focus. */
function isBehindDialog(event: KeyboardEvent): boolean {
  return event.key !== "Escape" && document.querySelector(".overlay, .popover") !== null;
}

function useRegistry(): Registry {
  const entries = useRef<Entry[]>([]);
  // Before painting: a key works as soon as the page shows it.
  useLayoutEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || isTyping(event) || isBehindDialog(event)) return;
      const id = shortcutOf(event);
      const entry = entries.current.findLast((candidate) => candidate.id === id);
      if (entry === undefined) return;
      event.preventDefault();
      entry.run();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
  return useMemo(
    () => ({
      add: (entry) => {
        entries.current.push(entry);
        return () => {
          entries.current = entries.current.filter((other) => other !== entry);
        };
      },
    }),
    [],
  );
}

export function ShortcutsProvider({ children }: { readonly children: ReactNode }) {
  return <ShortcutsContext value={useRegistry()}>{children}</ShortcutsContext>;
}

/** Run `action` on the shortcut's key while the component is mounted and `enabled`. */
export function useShortcut(id: ShortcutId, action: () => void, enabled = true): void {
  const registry = useContext(ShortcutsContext);
  const latest = useRef(action);
  useLayoutEffect(() => {
    latest.current = action;
  });
  useLayoutEffect(
    () => (enabled ? registry?.add({ id, run: () => latest.current() }) : undefined),
    [registry, id, enabled],
  );
}

/** Run `action` on Ctrl or ⌘ with a key, wherever the focus is, unless something else has handled it. */
export function useControlKey(key: string, action: () => void): void {
  const latest = useRef(action);
  useLayoutEffect(() => {
    latest.current = action;
  });
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== key || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey)
        return;
      if (event.defaultPrevented || event.isComposing) return;
      event.preventDefault();
      latest.current();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [key]);
}

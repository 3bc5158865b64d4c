/** Keyboard shortcuts. The handler registered last runs. While a dialog, a popover or a menu is open, only Escape has one. */

import { useEffect, useEffectEvent, useLayoutEffect } from "react";

import { type ShortcutId, shortcutOf } from "@/lib/browser/shortcuts";

interface Entry {
  readonly id: ShortcutId;
  readonly run: () => void;
}

/** The last one registered is last. */
const entries = new Set<Entry>();

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

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || isTyping(event) || isBehindDialog(event)) return;
  const id = shortcutOf(event);
  const entry = [...entries].findLast((candidate) => candidate.id === id);
  if (entry === undefined) return;
  event.preventDefault();
  entry.run();
}

/** Run `action` on the shortcut's key while the component is mounted and `enabled`. */
export function useShortcut(id: ShortcutId, action: () => void, enabled = true): void {
  const run = useEffectEvent(action);
  // Before painting: a key works as soon as the page shows it.
  useLayoutEffect(() => {
    if (!enabled) return undefined;
    const entry = { id, run: () => run() };
    entries.add(entry);
    // The same listener is added once.
    window.addEventListener("keydown", onKeyDown);
    return () => void entries.delete(entry);
  }, [id, enabled]);
}

/** Run `action` on Ctrl or ⌘ with a key, wherever the focus is, unless something else has handled it. */
export function useControlKey(key: string, action: () => void): void {
  const onPress = useEffectEvent((event: KeyboardEvent) => {
    if (event.key.toLowerCase() !== key || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    if (event.defaultPrevented || event.isComposing) return;
    event.preventDefault();
    action();
  });
  useEffect(() => {
    const listener = (event: KeyboardEvent) => onPress(event);
    window.addEventListener("keydown", listener);
    return () => window.removeEventListener("keydown", listener);
  }, []);
}

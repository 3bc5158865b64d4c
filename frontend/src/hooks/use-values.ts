/** Values that are typed, dragged or pass: text and numbers before they are committed, and the time. */

import { type ChangeEvent, type KeyboardEvent, useEffect, useState } from "react";

const DELAY_MS = 250;

/** The value, updated once it has not changed for `delay` milliseconds. */
export function useDebouncedValue<T>(value: T, delay = DELAY_MS): T {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setDebounced(value), delay);
    return () => window.clearTimeout(timer);
  }, [value, delay]);
  return debounced;
}

/** Whether the typed text is invalid, and the properties of the input. `value` is shown while nothing is typed. */
export function useDraft(value: string, isValid: (text: string) => boolean, onCommit: (text: string) => void) {
  const [draft, setDraft] = useState<string | null>(null);
  const invalid = draft !== null && !isValid(draft);
  const commit = () => {
    if (draft !== null && !invalid) onCommit(draft);
    setDraft(null);
  };
  const input = {
    "aria-invalid": invalid,
    value: draft ?? value,
    onChange: (event: ChangeEvent<HTMLInputElement>) => setDraft(event.target.value),
    onBlur: commit,
    onKeyDown: ({ key }: KeyboardEvent) => {
      if (key === "Enter") commit();
      if (key === "Escape") setDraft(null);
    },
  };
  return { invalid, input };
}

interface Dragged {
  readonly value: number;
  /** The value outside when it was committed; null while it is dragged. */
  readonly replaced: number | null;
}

interface DraggedValue {
  readonly shown: number;
  readonly drag: (value: number) => void;
  readonly commit: (value: number) => void;
}

/** Key presses are faster than the URL that holds the value: without this, each would start from an outdated one. */
export function useDraggedValue(value: number, onCommit: (value: number) => void): DraggedValue {
  const [dragged, setDragged] = useState<Dragged | null>(null);
  if (dragged !== null && dragged.replaced !== null && dragged.replaced !== value) setDragged(null);
  return {
    shown: dragged?.value ?? value,
    drag: (next) => setDragged({ value: next, replaced: null }),
    commit: (next) => {
      setDragged({ value: next, replaced: value });
      onCommit(next);
    },
  };
}

export function useNow(intervalMs: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), intervalMs);
    return () => window.clearInterval(timer);
  }, [intervalMs]);
  return now;
}

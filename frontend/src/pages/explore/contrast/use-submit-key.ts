/** Ctrl or ⌘ with Enter submits a page's form, wherever the focus is. */

import { startTransition, useEffect, useLayoutEffect, useRef, useState } from "react";

const isSubmit = (event: KeyboardEvent) =>
  event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented && !event.isComposing;

export function useSubmitKey(submit: () => void): void {
  const [presses, setPresses] = useState(0);
  const latest = useRef(submit);
  useLayoutEffect(() => {
    latest.current = submit;
  });
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (!isSubmit(event) || document.querySelector(".overlay, .popover") !== null) return;
      event.preventDefault();
      // A transition, as changes of the URL are: a number that this key press commits is rendered first.
      startTransition(() => setPresses((count) => count + 1));
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
  useEffect(() => {
    if (presses > 0) latest.current();
  }, [presses]);
}

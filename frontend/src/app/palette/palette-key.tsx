/** Opens the command palette on Ctrl or ⌘ with K. It is loaded on first use. */

import { lazy, Suspense, useEffect, useState } from "react";

const Palette = lazy(() => import("./palette"));

export function PaletteKey() {
  const [isOpen, setOpen] = useState(false);
  const [wasOpened, setOpened] = useState(false);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey)
        return;
      event.preventDefault();
      setOpened(true);
      setOpen((open) => !open);
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
  if (!wasOpened) return null;
  return (
    <Suspense>
      <Palette isOpen={isOpen} onOpenChange={setOpen} />
    </Suspense>
  );
}

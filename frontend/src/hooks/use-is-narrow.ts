/** Whether the layout is the narrow one, with tabs, where table rows open a sheet. */

import { useSyncExternalStore } from "react";

import { pageScale } from "@/lib/browser/presentation";

const WIDTH = 720;

function subscribe(listener: () => void): () => void {
  window.addEventListener("resize", listener);
  return () => window.removeEventListener("resize", listener);
}

/** The largest of these widths that the window has; 0 if it has none. */
export const useRoom = (widths: readonly number[]): number =>
  useSyncExternalStore(subscribe, () => Math.max(0, ...widths.filter((it) => window.innerWidth >= it * pageScale())));

export function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => window.innerWidth <= WIDTH * pageScale());
}

/** Whether the layout is the narrow one, with tabs, where table rows open a sheet. */

import { useSyncExternalStore } from "react";

const QUERY = "(max-width: 720px)";

function subscribe(listener: () => void): () => void {
  const media = window.matchMedia(QUERY);
  media.addEventListener("change", listener);
  return () => media.removeEventListener("change", listener);
}

export function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => window.matchMedia(QUERY).matches);
}

/**
 * Saves the scroll position of the experts table and restores it after Back, a reload, or the link back from an
 * expert. Fetches pages until the saved position is reached.
 */

import { useEffect, useLayoutEffect, useRef } from "react";
import { NavigationType, useLocation, useNavigationType } from "react-router";

import { subscribeWindowPosition, windowPosition } from "@/hooks/window-position";
import { saveTablePosition, restoresPosition, readTablePosition } from "@/lib/browser/table-position";

interface LoadedRows {
  /** Number of rows loaded. */
  readonly count: number;
  readonly hasMore: boolean;
  readonly fetchMore: () => void;
}

/** Position to restore; 0 for a newly opened table. */
function useSavedPosition(run: string) {
  const location = useLocation();
  const state: unknown = location.state;
  const { search } = location;
  const kind = useNavigationType();
  const targetRef = useRef<number | null>(null);
  const isRead = useRef(false);
  useLayoutEffect(() => {
    if (isRead.current) return;
    isRead.current = true;
    const saved = kind === NavigationType.Pop || restoresPosition(state) ? readTablePosition(run) : null;
    targetRef.current = saved?.search === search ? saved.scroll : 0;
  }, [kind, run, search, state]);
  return targetRef;
}

export function useScrollRestoration(run: string, { count, hasMore, fetchMore }: LoadedRows): void {
  const { search } = useLocation();
  const wantedRef = useSavedPosition(run);
  useEffect(() => {
    if (wantedRef.current === null || count === 0) return;
    const maxScroll = document.documentElement.scrollHeight - window.innerHeight;
    if (wantedRef.current > maxScroll && hasMore) {
      fetchMore();
      return;
    }
    window.scrollTo({ top: wantedRef.current, behavior: "instant" });
    wantedRef.current = null;
  }, [count, fetchMore, hasMore, wantedRef]);
  // A layout effect, because its cleanup must run before the next page scrolls.
  useLayoutEffect(() => {
    const savePosition = () => {
      if (wantedRef.current === null) saveTablePosition(run, { search, scroll: windowPosition().top });
    };
    const cancelRestoration = () => {
      wantedRef.current = null;
    };
    const unsubscribe = subscribeWindowPosition(savePosition);
    savePosition();
    window.addEventListener("wheel", cancelRestoration, { passive: true });
    window.addEventListener("touchmove", cancelRestoration, { passive: true });
    return () => {
      unsubscribe();
      window.removeEventListener("wheel", cancelRestoration);
      window.removeEventListener("touchmove", cancelRestoration);
    };
  }, [run, search, wantedRef]);
}

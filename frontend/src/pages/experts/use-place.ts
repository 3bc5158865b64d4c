/** Keeps the reader's place in the table of experts, and finds it again after Back, a reload, or the way back from an
 *  expert. Rows come a page at a time, so as many are asked for as lie above the place. */

import { useEffect, useLayoutEffect, useRef } from "react";
import { NavigationType, useLocation, useNavigationType } from "react-router";

import { keepPlace, leadsToPlace, readPlace } from "@/components/list-place";
import { followOutlook, outlook } from "@/components/outlook";

interface Rows {
  /** How many there are by now. */
  readonly count: number;
  readonly hasMore: boolean;
  readonly fetchMore: () => void;
}

/** How far down to go first; 0 for a table that is opened anew. */
function useWanted(run: string) {
  const location = useLocation();
  const state: unknown = location.state;
  const { search } = location;
  const kind = useNavigationType();
  const wantedRef = useRef<number | null>(null);
  const isSettled = useRef(false);
  useLayoutEffect(() => {
    if (isSettled.current) return;
    isSettled.current = true;
    const kept = kind === NavigationType.Pop || leadsToPlace(state) ? readPlace(run) : null;
    wantedRef.current = kept?.search === search ? kept.scroll : 0;
  }, [kind, run, search, state]);
  return wantedRef;
}

export function usePlace(run: string, { count, hasMore, fetchMore }: Rows): void {
  const { search } = useLocation();
  const wantedRef = useWanted(run);
  useEffect(() => {
    if (wantedRef.current === null || count === 0) return;
    const room = document.documentElement.scrollHeight - window.innerHeight;
    if (wantedRef.current > room && hasMore) {
      fetchMore();
      return;
    }
    window.scrollTo({ top: wantedRef.current, behavior: "instant" });
    wantedRef.current = null;
  }, [count, fetchMore, hasMore, wantedRef]);
  // Before the next page is painted: what it scrolls must not be taken for the table's place.
  useLayoutEffect(() => {
    const keep = () => {
      if (wantedRef.current === null) keepPlace(run, { search, scroll: outlook().top });
    };
    const letGo = () => {
      wantedRef.current = null;
    };
    const stop = followOutlook(keep);
    keep();
    window.addEventListener("wheel", letGo, { passive: true });
    window.addEventListener("touchmove", letGo, { passive: true });
    return () => {
      stop();
      window.removeEventListener("wheel", letGo);
      window.removeEventListener("touchmove", letGo);
    };
  }, [run, search, wantedRef]);
}

/** Search while typing: asks 250 ms after the last key, or at once on Enter. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { searchQuery } from "@/api/queries";

import { useCurrentRun } from "../current-run";

const PAUSE_MS = 250;

/** The value as it was `pause` milliseconds ago. */
export function useSettled<T>(value: T, pause = PAUSE_MS): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), pause);
    return () => window.clearTimeout(timer);
  }, [value, pause]);
  return settled;
}

export function useSearchHits(text: string) {
  const { name } = useCurrentRun();
  const settled = useSettled(text.trim());
  const query = useQuery(searchQuery(name ?? "", name === null ? "" : settled));
  return { hits: settled === "" ? [] : (query.data?.hits ?? []), settled, query };
}

/** Values that wait until typing pauses. */

import { useEffect, useState } from "react";

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

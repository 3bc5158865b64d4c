import { useEffect, useState } from "react";

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

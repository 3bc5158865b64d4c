/** Listeners of a value outside React, for useSyncExternalStore. */

export interface Listeners {
  readonly notify: () => void;
  readonly subscribe: (listener: () => void) => () => void;
}

export function createListeners(): Listeners {
  const listeners = new Set<() => void>();
  return {
    notify: () => listeners.forEach((listener) => listener()),
    subscribe: (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

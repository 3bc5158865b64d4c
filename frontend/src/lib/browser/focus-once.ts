/** A ref that takes the focus, for an element that replaces the one that had it. */
export const focusOnce = (element: HTMLElement | null): void => element?.focus();

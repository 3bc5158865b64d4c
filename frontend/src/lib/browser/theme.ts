/** Colour theme: auto, light or dark. The choice is kept in the browser; `auto` follows the system. */

import { createListeners } from "./listeners";

const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "mxd-theme";
const listeners = createListeners();

export function currentTheme(): Theme {
  const stored = window.localStorage.getItem(KEY);
  return THEMES.find((theme) => theme === stored) ?? "auto";
}

/** Set the theme on the document element, where the stylesheet reads it. */
function applyTheme(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function chooseTheme(theme: Theme): void {
  if (theme === "auto") window.localStorage.removeItem(KEY);
  else window.localStorage.setItem(KEY, theme);
  applyTheme(theme);
  listeners.notify();
}

function systemScheme(): MediaQueryList {
  return window.matchMedia("(prefers-color-scheme: dark)");
}

/** Call `listener` when the theme may have changed: another choice, or another system theme. */
export function subscribeTheme(listener: () => void): () => void {
  const system = systemScheme();
  const unsubscribe = listeners.subscribe(listener);
  system.addEventListener("change", listener);
  return () => {
    unsubscribe();
    system.removeEventListener("change", listener);
  };
}

/** The theme in effect. */
export function resolvedTheme(): "light" | "dark" {
  const theme = currentTheme();
  if (theme !== "auto") return theme;
  return systemScheme().matches ? "dark" : "light";
}

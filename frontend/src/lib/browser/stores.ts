/** Values outside React that components subscribe to: the prompt of the page visited last, and the colour theme. */

export function createListeners() {
  const listeners = new Set<() => void>();
  return {
    notify: () => listeners.forEach((listener) => listener()),
    subscribe: (listener: () => void) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

const PROMPT_KEY = "mxd-prompt";
const CHAT_KEY = "mxd-chat";
const promptListeners = createListeners();
let prompt = sessionStorage.getItem(PROMPT_KEY) ?? "";

export const lastPrompt = (): string => prompt;

/** The URL parameter of the chat whose text is the last prompt; empty without one. */
export const lastChat = (): string => sessionStorage.getItem(CHAT_KEY) ?? "";

export function rememberPrompt(text: string, chat = ""): void {
  if (text === prompt) return;
  prompt = text;
  sessionStorage.setItem(PROMPT_KEY, text);
  sessionStorage.setItem(CHAT_KEY, chat);
  promptListeners.notify();
}

export const subscribePrompt = promptListeners.subscribe;

const STRENGTHS_KEY = "mxd-strengths";
const strengths = (): Partial<Record<string, number>> =>
  JSON.parse(window.localStorage.getItem(STRENGTHS_KEY) ?? "{}") as Partial<Record<string, number>>;

/** The smallest strength at which a sweep found a clear effect of adding an expert. */
export const clearStrength = (run: string, expert: number) => strengths()[`${run}/${expert}`];

export function rememberStrength(run: string, expert: number, strength: number): void {
  window.localStorage.setItem(STRENGTHS_KEY, JSON.stringify({ ...strengths(), [`${run}/${expert}`]: strength }));
}

const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const THEME_KEY = "mxd-theme";
const themeListeners = createListeners();

export function currentTheme(): Theme {
  const stored = window.localStorage.getItem(THEME_KEY);
  return THEMES.find((theme) => theme === stored) ?? "auto";
}

/** Set the theme on the document element, where the stylesheet reads it. */
function applyTheme(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function chooseTheme(theme: Theme): void {
  if (theme === "auto") window.localStorage.removeItem(THEME_KEY);
  else window.localStorage.setItem(THEME_KEY, theme);
  applyTheme(theme);
  themeListeners.notify();
}

function systemScheme(): MediaQueryList {
  return window.matchMedia("(prefers-color-scheme: dark)");
}

/** Call `listener` when the theme may have changed: another choice, or another system theme. */
export function subscribeTheme(listener: () => void): () => void {
  const system = systemScheme();
  const unsubscribe = themeListeners.subscribe(listener);
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

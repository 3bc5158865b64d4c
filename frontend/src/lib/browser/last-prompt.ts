/** The prompt of the page visited last, so that it follows to the next page. Kept for the browser tab. */

const KEY = "mxd-prompt";
const listeners = new Set<() => void>();
let prompt = sessionStorage.getItem(KEY) ?? "";

export const lastPrompt = (): string => prompt;

export function rememberPrompt(text: string): void {
  if (text === prompt) return;
  prompt = text;
  sessionStorage.setItem(KEY, text);
  for (const listener of listeners) listener();
}

export function subscribePrompt(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

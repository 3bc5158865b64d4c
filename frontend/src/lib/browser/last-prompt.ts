/** The prompt of the page visited last, so that it follows to the next page. Kept for the browser tab. */

import { createListeners } from "./listeners";

const KEY = "mxd-prompt";
const listeners = createListeners();
let prompt = sessionStorage.getItem(KEY) ?? "";

export const lastPrompt = (): string => prompt;

export function rememberPrompt(text: string): void {
  if (text === prompt) return;
  prompt = text;
  sessionStorage.setItem(KEY, text);
  listeners.notify();
}

export const subscribePrompt = listeners.subscribe;

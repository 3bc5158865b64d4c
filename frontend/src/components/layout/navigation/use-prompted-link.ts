/** The prompt follows from page to page: links to pages with a prompt carry the last one. */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { useLocation } from "react-router";

import { type PageName, usePageLinks } from "@/components/runs/page-links";
import { lastPrompt, rememberPrompt, subscribePrompt } from "@/lib/browser/last-prompt";

const PAGES_WITH_PROMPT: readonly PageName[] = ["routing", "circuits", "steering"];
const hasPrompt = (page: string) => PAGES_WITH_PROMPT.some((other) => other === page);

/**
 * Remember the prompt of the current page. An empty prompt counts only once it was cleared on the page itself. A chat is
 * remembered by its page, once it is text.
 */
export function useRememberPrompt(): void {
  const { pathname, search } = useLocation();
  const earlierPage = useRef<string | null>(null);
  const params = new URLSearchParams(search);
  const prompt = params.get("prompt") ?? "";
  const isChat = params.has("turns");
  // Other parameters may change while a newer prompt is being typed.
  useEffect(() => {
    if (!isChat && hasPrompt(pathname.slice(1)) && (prompt !== "" || earlierPage.current === pathname))
      rememberPrompt(prompt);
    earlierPage.current = pathname;
  }, [pathname, prompt, isChat]);
}

export function usePromptedLink(): (page: PageName) => string {
  const links = usePageLinks();
  const prompt = useSyncExternalStore(subscribePrompt, lastPrompt);
  return (page) => links.page(page, prompt !== "" && hasPrompt(page) ? { prompt } : {});
}

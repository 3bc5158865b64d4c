/** The places of the dashboard, each with its views, and links between them that carry the prompt. */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { useLocation } from "react-router";

import { turnsParam } from "@/components/prompt/turns-param";
import { type PageName, usePageLinks } from "@/components/runs/page-links";
import type { IconName } from "@/components/ui/icon";
import { lastChat, lastPrompt, rememberPrompt, subscribePrompt } from "@/lib/browser/stores";
import { lastMessage } from "@/lib/text/kwic";

export interface View {
  readonly page: PageName;
  readonly name: string;
}

export interface Place {
  readonly name: string;
  readonly icon: IconName;
  /** The place opens with the first one. */
  readonly views: readonly [View, ...View[]];
}

export const PLACES: readonly Place[] = [
  { name: "Runs", icon: "runs", views: [{ page: "runs", name: "Runs" }] },
  {
    name: "Explore",
    icon: "experts",
    views: [
      { page: "experts", name: "Experts" },
      { page: "search", name: "Search" },
    ],
  },
  {
    name: "Prompt",
    icon: "routing",
    views: [
      { page: "routing", name: "Tokens" },
      { page: "layers", name: "Layers" },
      { page: "texts", name: "Compare" },
      { page: "circuits", name: "Circuit" },
    ],
  },
  {
    name: "Steer",
    icon: "steering",
    views: [
      { page: "steering", name: "Text" },
      { page: "chat", name: "Chat" },
      { page: "strength", name: "Strength" },
      { page: "sessions", name: "Sessions" },
    ],
  },
  { name: "Evaluate", icon: "probing", views: [{ page: "evaluate", name: "Evaluate" }] },
];

/** The place of an address, from its first part; null for Home, the glossary and missing pages. */
export function placeOf(pathname: string): Place | null {
  const part = pathname.split("/")[1];
  const section = part === "lists" ? "experts" : part;
  return PLACES.find(({ views }) => views.some(({ page }) => page === section)) ?? null;
}

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

/** Parameters that a view leaves to the others of its place: with them, its address would lead to another view. */
type LeftOut = Readonly<Partial<Record<PageName, readonly string[]>>>;
const STEER: LeftOut = { steering: ["turns"], chat: [], strength: [], sessions: [] };
const LEFT_OUT: readonly LeftOut[] = [{ routing: ["layers"], layers: [], texts: ["layers"], circuits: [] }, STEER];

export const hasPrompt = (page: string) => page !== "sessions" && LEFT_OUT.some((views) => Object.hasOwn(views, page));

/** Links between the views of a place keep their parameters; links to any page with a prompt carry the last one. */
export function usePromptedLink(): (page: PageName) => string {
  const links = usePageLinks();
  const { pathname, search } = useLocation();
  const prompt = useSyncExternalStore(subscribePrompt, lastPrompt);
  return (page) => {
    const chat = lastChat();
    const last = chat !== "" && Object.hasOwn(STEER, page) ? { turns: chat } : { prompt };
    const carried = prompt !== "" && hasPrompt(page) ? last : {};
    const place = LEFT_OUT.find((views) => page in views && pathname.slice(1) in views);
    if (place === undefined) return links.page(page, carried);
    const params = new URLSearchParams(search);
    const message = lastMessage(turnsParam.read(params.get("turns")));
    for (const name of place[page] ?? []) params.delete(name);
    if (message === "" && page !== "chat") params.delete("turns");
    // The address of a chat has the turns, and that of a text its last message.
    const own = params.has("turns") ? {} : { prompt: message };
    return links.page(page, { ...Object.fromEntries(params), ...(message === "" ? carried : own) });
  };
}

/** The places of the dashboard, each with the views that it holds. */

import type { PageName } from "@/components/runs/page-links";
import type { IconName } from "@/components/ui/icon";

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

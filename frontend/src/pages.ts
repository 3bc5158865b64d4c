/** Every page: its address, and the chunk it is in. The one that is asked for is fetched at once, not when it is drawn. */

import { type ComponentType, lazy } from "react";
import { matchPath } from "react-router";

import { ApiError } from "@/api/errors";

type PageModule = Promise<{ readonly default: ComponentType }>;

const LOADERS: Readonly<Record<string, () => PageModule>> = {
  "/": () => import("@/pages/home"),
  "/runs": () => import("@/pages/runs"),
  "/runs/:run": () => import("@/pages/run"),
  "/compare": () => import("@/pages/compare"),
  "/experts": () => import("@/pages/experts"),
  "/experts/:expert": () => import("@/pages/expert"),
  "/search": () => import("@/pages/search"),
  "/lists": () => import("@/pages/lists"),
  "/lists/:list": () => import("@/pages/list"),
  "/routing": () => import("@/pages/routing"),
  "/circuits": () => import("@/pages/circuits"),
  "/privacy": () => import("@/pages/privacy"),
  "/steering": () => import("@/pages/steering"),
  "/s/:id": () => import("@/pages/session"),
  "/frontier": () => import("@/pages/frontier"),
  "/faithfulness": () => import("@/pages/faithfulness"),
  "/health": () => import("@/pages/health"),
  "/probing": () => import("@/pages/probing"),
  "/*": () => import("@/pages/not-found"),
};

/** Pages whose chunk was there before anything was drawn: they are drawn at once, with nothing in their place. */
const ready = new Map<string, ComponentType>();
const notFetched = (): never => {
  throw new ApiError("page-not-fetched", "This page could not be fetched. Is mxd serve still running?", 0);
};
const onRequest = new Map(Object.entries(LOADERS).map(([path, load]) => [path, lazy(() => load().catch(notFetched))]));

/** Every address with its page. Call it once the first page has been preloaded, and keep the result. */
export function allPages() {
  return [...onRequest].map(([path, Lazy]) => ({ path, Page: ready.get(path) ?? Lazy }));
}

/** Fetch the page at an address; what fails here fails again, and is said, where the page is drawn. */
export async function preloadPage(address: string): Promise<void> {
  const found = Object.entries(LOADERS).find(([path]) => matchPath(path, address) !== null);
  if (found === undefined) return;
  const [path, load] = found;
  const module = await load().catch(() => undefined);
  if (module !== undefined) ready.set(path, module.default);
}

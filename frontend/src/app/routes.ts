/** Route table. The first page's chunk is fetched before rendering, so that it renders without a placeholder. */

import { type ComponentType, lazy } from "react";
import { matchPath } from "react-router";

import { ApiError } from "@/api/http";
import { MOVED } from "@/lib/browser/moved";

type PageModule = Promise<{ readonly default: ComponentType }>;

const LOADERS: Readonly<Record<string, () => PageModule>> = {
  "/": () => import("@/pages/home"),
  "/runs": () => import("@/pages/runs"),
  "/runs/:run": () => import("@/pages/run"),
  "/evaluate": () => import("@/pages/evaluate"),
  "/experts": () => import("@/pages/explore/experts"),
  "/experts/:expert": () => import("@/pages/explore/expert"),
  "/search": () => import("@/pages/explore/search"),
  "/lists/:list": () => import("@/pages/explore/list"),
  "/routing": () => import("@/pages/prompt/routing"),
  "/layers": () => import("@/pages/prompt/routing"),
  "/texts": () => import("@/pages/prompt/routing"),
  "/circuits": () => import("@/pages/prompt/circuits"),
  "/steering": () => import("@/pages/steer/steering"),
  "/chat": () => import("@/pages/steer/steering"),
  "/strength": () => import("@/pages/steer/steering"),
  "/sessions": () => import("@/pages/steer/steering"),
  "/s/:id": () => {
    // The page redirects there; errors are reported once it does.
    void LOADERS["/steering"]?.().catch(() => undefined);
    return import("@/pages/steer/session");
  },
  "/glossary": () => import("@/pages/glossary"),
  ...Object.fromEntries(Object.keys(MOVED).map((path) => [path, () => import("@/pages/moved")])),
  "/*": () => import("@/pages/not-found"),
};

/** Pages whose chunk was loaded before the first render. */
const preloaded = new Map<string, ComponentType>();
const throwPageNotLoaded = (): never => {
  throw new ApiError("page-not-fetched", "This page could not be loaded. Check that mxd serve is still running.", 0);
};
const lazyPages = new Map(
  Object.entries(LOADERS).map(([path, load]) => [path, lazy(() => load().catch(throwPageNotLoaded))]),
);

/** All routes. Call once, after the first page has been preloaded. */
export function allPages() {
  return [...lazyPages].map(([path, Lazy]) => ({ path, Page: preloaded.get(path) ?? Lazy }));
}

/** Load the page of a URL. Errors are ignored here; the page's lazy loader reports them. */
export async function preloadPage(address: string): Promise<void> {
  const route = Object.entries(LOADERS).find(([path]) => matchPath(path, address) !== null);
  if (route === undefined) return;
  const [path, load] = route;
  const module = await load().catch(() => undefined);
  if (module !== undefined) preloaded.set(path, module.default);
}

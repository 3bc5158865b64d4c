/** URLs of pages. Each contains the run, so that any link can be shared on its own. */

import { useMemo } from "react";

import { queryText } from "@/hooks/use-url-state";

import { useCurrentRun } from "./current-run";

export type PageName =
  | "home"
  | "runs"
  | "evaluate"
  | "experts"
  | "search"
  | "routing"
  | "layers"
  | "texts"
  | "circuits"
  | "steering"
  | "chat"
  | "strength"
  | "sessions"
  | "glossary";

export interface PageLinks {
  readonly page: (page: PageName, params?: Readonly<Record<string, string>>) => string;
  readonly expert: (expert: number, params?: Readonly<Record<string, string>>) => string;
  readonly list: (list: number) => string;
  readonly run: (run: string) => string;
}

/** Short URL of a saved session. */
export const sessionUrl = (id: string) => `/s/${id}`;

export function pageLinks(run: string | null): PageLinks {
  const query = (params: Readonly<Record<string, string>>) =>
    queryText(new URLSearchParams({ ...(run === null ? {} : { run }), ...params }));
  return {
    page: (page, params = {}) => `/${page === "home" ? "" : page}${query(params)}`,
    expert: (expert, params = {}) => `/experts/${expert}${query(params)}`,
    list: (list) => `/lists/${list}${query({})}`,
    run: (name) => `/runs/${encodeURIComponent(name)}`,
  };
}

export function usePageLinks(): PageLinks {
  const { name } = useCurrentRun();
  return useMemo(() => pageLinks(name), [name]);
}

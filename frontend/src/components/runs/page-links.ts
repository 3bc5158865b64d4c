/** URLs of pages. Each contains the run, so that any link can be shared on its own. */

import { useMemo } from "react";

import type { RunSummary } from "@/api/types";
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

/** Parameters that name experts, lists or sizes of one run. All others apply to any run. */
const OF_ONE_RUN = ["ablated", "among", "expert", "groups", "k", "lasso", "list", "node", "pinned", "session"];

interface Address {
  readonly pathname: string;
  readonly search: string;
}

/**
 * The same view of another run: prompt, token, search text, filters and settings stay. `edits` are those of the tray, as
 * seen from the new run. A page of one expert or list leads to the table.
 */
export function urlForRun({ pathname, search }: Address, from: string | null, to: string, edits: string): string {
  if (pathname.startsWith("/runs/")) return `/runs/${encodeURIComponent(to)}${search}`;
  const section = /^\/[^/]*/.exec(pathname)?.[0] ?? "/";
  if (section !== pathname) return `${section}?run=${encodeURIComponent(to)}`;
  const query = new URLSearchParams(search);
  for (const name of OF_ONE_RUN) query.delete(name);
  query.set("run", to);
  if (query.has("edits")) query.set("edits", edits);
  const lockedToken = /^(\d+)\.\d+$/.exec(query.get("lock") ?? "")?.[1];
  if (lockedToken !== undefined) query.set("lock", lockedToken);
  // The run that was compared with trades places with the current one.
  if (query.get("with") === to) query.set("with", from ?? "");
  const layers = query.get("layers")?.split(",") ?? [];
  if (layers.includes(to)) query.set("layers", layers.map((name) => (name === to ? (from ?? "") : name)).join(","));
  return section + queryText(query);
}

/** The first MxD with a run of another method at its layer. */
function comparedRun(runs: readonly RunSummary[]): RunSummary | undefined {
  const isRival = (run: RunSummary) => (other: RunSummary) =>
    other.language_model === run.language_model && other.layer === run.layer && other.method !== run.method;
  return runs.find((run) => run.method === "mxd" && runs.some(isRival(run)));
}

/** Links to the pages of that run; without one, of the current run. */
export function useComparedLinks(): PageLinks {
  const { runs, name } = useCurrentRun();
  return pageLinks(comparedRun(runs)?.name ?? name);
}

type RunName = Pick<RunSummary, "name" | "method">;
type Layer = RunName & Pick<RunSummary, "layer">;

/** Whether expert n of both runs was initialised at the same example token, so that it may mean the same in both. */
export const haveSameStart = (one: RunSummary, other: RunSummary): boolean =>
  (["language_model_name", "method", "seed", "num_experts"] as const).every((key) => one[key] === other[key]);

function commonSuffixLength(one: string, other: string): number {
  let length = 0;
  while (length < Math.min(one.length, other.length) && one.at(-1 - length) === other.at(-1 - length)) length += 1;
  return length;
}

/** One run per other layer: preferably of the same method, then the one with the most similar name ending. */
export function pickLayerRuns(run: RunName, layers: readonly Layer[]): readonly string[] {
  const similarity = (layer: Layer) =>
    (layer.method === run.method ? 1000 : 0) + Math.min(999, commonSuffixLength(layer.name, run.name));
  const best = new Map<number, Layer>();
  for (const layer of layers) {
    const current = best.get(layer.layer);
    if (current === undefined || similarity(layer) > similarity(current)) best.set(layer.layer, layer);
  }
  return [...best.values()].sort((a, b) => a.layer - b.layer).map((layer) => layer.name);
}

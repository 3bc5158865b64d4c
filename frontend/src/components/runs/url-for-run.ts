/** The address of the same view of another run. */

import { queryText } from "@/hooks/use-url-state";

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

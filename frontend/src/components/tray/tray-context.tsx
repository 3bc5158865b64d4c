/** The tray of the current run. */

import { createContext, type ReactNode, useContext, useMemo, useState, useSyncExternalStore } from "react";

import { useCurrentRun } from "@/components/runs/current-run";
import { editsParam, readParams, textParam } from "@/hooks/use-url-state";
import { type Edit, newEdit } from "@/lib/edits/edits";
import { createTrayStore, type TrayStore, withEdit, withoutExpert } from "@/lib/edits/tray";

const TrayContext = createContext<TrayStore | null>(null);
const URL_PARAMS = { run: textParam(null), edits: editsParam };

/** A link with edits fills the tray of its run once, on loading the page. */
function openStore(): TrayStore {
  return createTrayStore(window.sessionStorage, readParams(URL_PARAMS, window.location.search));
}

export function TrayProvider({ children }: { readonly children: ReactNode }) {
  const [store] = useState(openStore);
  return <TrayContext value={store}>{children}</TrayContext>;
}

export interface Tray {
  readonly edits: readonly Edit[];
  /** `run` is that of the expert, here and below; by default the current one. */
  readonly has: (expert: number, run?: string) => boolean;
  /** Adds a new edit or removes the existing one. */
  readonly toggle: (expert: number, run?: string) => void;
  /** Adds the edit or replaces the expert's existing one. */
  readonly put: (edit: Edit) => void;
  readonly remove: (expert: number, run?: string) => void;
  readonly replaceAll: (edits: readonly Edit[]) => void;
}

export function useTray(): Tray {
  const store = useContext(TrayContext);
  if (store === null) throw new Error("useTray needs a TrayProvider above it");
  const { name: run } = useCurrentRun();
  const edits = useSyncExternalStore(store.subscribe, () => store.read(run));
  return useMemo(() => {
    const replaceAll = (next: readonly Edit[]) => {
      if (run !== null) store.write(run, next);
    };
    /** An edit names its expert's run only if that is another one. */
    const other = (expertRun?: string) => (expertRun === run ? undefined : expertRun);
    const has = (expert: number, expertRun?: string) =>
      edits.some((edit) => edit.expert === expert && edit.run === other(expertRun));
    const put = (edit: Edit) => replaceAll(withEdit(edits, edit));
    const remove = (expert: number, expertRun?: string) => replaceAll(withoutExpert(edits, expert, other(expertRun)));
    const toggle = (expert: number, expertRun?: string) =>
      has(expert, expertRun) ? remove(expert, expertRun) : put(newEdit(expert, other(expertRun)));
    return { edits, has, toggle, put, remove, replaceAll };
  }, [edits, run, store]);
}

/** The tray of the current run, for whatever wants to read or fill it. */

import { createContext, type ReactNode, useContext, useMemo, useState, useSyncExternalStore } from "react";

import { type Edit, newEdit } from "@/lib/edits";
import { createTrayStore, type TrayStore, withEdit, withoutExpert } from "@/lib/tray";
import { editsParam, readParams, textParam } from "@/url-state";

import { useCurrentRun } from "../current-run";

const TrayContext = createContext<TrayStore | null>(null);
const SHARED = { run: textParam(null), edits: editsParam };

/** A link that carries edits fills the tray of its run once, when the page is opened. */
function openStore(): TrayStore {
  return createTrayStore(window.sessionStorage, readParams(SHARED, window.location.search));
}

export function TrayProvider({ children }: { readonly children: ReactNode }) {
  const [store] = useState(openStore);
  return <TrayContext value={store}>{children}</TrayContext>;
}

export interface Tray {
  readonly edits: readonly Edit[];
  /** `run`: of another layer, here and below. */
  readonly has: (expert: number, run?: string) => boolean;
  /** Adds as a new edit, or takes out. */
  readonly toggle: (expert: number, run?: string) => void;
  /** Adds, or replaces the expert's edit. */
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
    const has = (expert: number, other?: string) => edits.some((edit) => edit.expert === expert && edit.run === other);
    const put = (edit: Edit) => replaceAll(withEdit(edits, edit));
    const remove = (expert: number, other?: string) => replaceAll(withoutExpert(edits, expert, other));
    const toggle = (expert: number, other?: string) =>
      has(expert, other) ? remove(expert, other) : put(newEdit(expert, other));
    return { edits, has, toggle, put, remove, replaceAll };
  }, [edits, run, store]);
}

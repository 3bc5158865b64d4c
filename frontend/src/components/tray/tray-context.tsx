/** The tray, as seen from the current run, and the button that adds an expert to it. */

import { useEffect, useMemo, useSyncExternalStore } from "react";

import { useCurrentRun } from "@/components/runs/current-run";
import { Icon } from "@/components/ui/icon";
import { editsParam, readParams, textParam } from "@/hooks/use-url-state";
import { clearStrength } from "@/lib/browser/stores";
import { type Edit, newEdit } from "@/lib/edits/edits";
import {
  createTrayStore,
  TRAY_KEY,
  type TrayStore,
  viewFrom,
  withEdit,
  withoutExpert,
  withRuns,
} from "@/lib/edits/tray";

const URL_PARAMS = { run: textParam(null), edits: editsParam };

let opened: TrayStore | null = null;

/** A link with edits fills the tray once, on loading the page. */
function trayStore(): TrayStore {
  if (opened !== null) return opened;
  const { run, edits } = readParams(URL_PARAMS, window.location.search);
  const linked = run === null ? edits : withRuns(edits, run);
  opened = createTrayStore(window.sessionStorage, window.localStorage, linked);
  return opened;
}

/** On Steering the URL holds the edits, so that two tabs can steer differently. */
const isSteering = () => window.location.pathname.startsWith("/steering");

/** Follows the experts that other tabs collect. Once per page. */
export function useSharedTray(): void {
  const store = trayStore();
  const { name } = useCurrentRun();
  useEffect(() => {
    // Edits from a link without a run belong to the run that it opens.
    if (name !== null && store.read().some(({ run }) => run === undefined)) store.write(withRuns(store.read(), name));
  }, [name, store]);
  useEffect(() => {
    const onStorage = ({ key }: StorageEvent) => {
      if (key === TRAY_KEY && !isSteering()) store.follow();
    };
    window.addEventListener("storage", onStorage);
    return () => window.removeEventListener("storage", onStorage);
  }, [store]);
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

const NO_EDITS: readonly Edit[] = [];

export function useTray(): Tray {
  const store = trayStore();
  const { summary, runs } = useCurrentRun();
  const all = useSyncExternalStore(store.subscribe, store.read);
  const { shown: edits, hidden } = useMemo(
    () => (summary === null ? { shown: all, hidden: NO_EDITS } : viewFrom(all, summary, runs)),
    [all, summary, runs],
  );
  return useMemo(() => {
    const run = summary?.name;
    const replaceAll = (next: readonly Edit[]) => {
      if (run === undefined) return;
      const kept = [...hidden, ...withRuns(next, run)];
      if (isSteering()) store.write(kept);
      else store.share(kept);
    };
    /** An edit names its expert's run only if that is another one. */
    const other = (expertRun?: string) => (expertRun === run ? undefined : expertRun);
    const has = (expert: number, expertRun?: string) =>
      edits.some((edit) => edit.expert === expert && edit.run === other(expertRun));
    const put = (edit: Edit) => replaceAll(withEdit(edits, edit));
    const remove = (expert: number, expertRun?: string) => replaceAll(withoutExpert(edits, expert, other(expertRun)));
    const toggle = (expert: number, expertRun = run) => {
      if (has(expert, expertRun)) remove(expert, expertRun);
      else put(newEdit(expert, other(expertRun), clearStrength(expertRun ?? "", expert)));
    };
    return { edits, has, toggle, put, remove, replaceAll };
  }, [edits, hidden, summary, store]);
}

interface PlusButtonProps {
  readonly expert: number;
  /** The expert's run; by default the current one. */
  readonly run?: string | undefined;
  /** The edit that it adds; by default a new one. */
  readonly edit?: Edit | undefined;
}

export function PlusButton({ expert, run, edit }: PlusButtonProps) {
  const tray = useTray();
  const isInTray = tray.has(expert, run);
  return (
    <button
      type="button"
      className={isInTray ? "plus in" : "plus"}
      aria-pressed={isInTray}
      aria-label={`Expert ${expert} in the tray`}
      title={isInTray ? "Remove from tray" : "Add to tray"}
      onClick={(event) => {
        event.stopPropagation();
        if (edit !== undefined && !isInTray) tray.put(edit);
        else tray.toggle(expert, run);
      }}
    >
      <Icon name={isInTray ? "check" : "plus"} />
    </button>
  );
}

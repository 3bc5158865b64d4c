/**
 * The tray: edits that persist across pages and runs. Each names its expert's run. A tab has its own copy, because two
 * tabs may steer differently; experts that are collected outside Steering reach all tabs.
 */

import { createListeners } from "@/lib/browser/stores";

import { type Edit, editKey, formatEdits, parseEdits } from "./edits";

type TrayStorage = Pick<Storage, "getItem" | "setItem">;

export const TRAY_KEY = "mxd-tray";

/** `linked`: edits from a link, which replace this tab's. */
export function createTrayStore(tab: TrayStorage, shared: TrayStorage, linked: readonly Edit[] = []) {
  const { notify, subscribe } = createListeners();
  let edits = linked.length > 0 ? linked : parseEdits(tab.getItem(TRAY_KEY) ?? shared.getItem(TRAY_KEY) ?? "");
  const write = (next: readonly Edit[]) => {
    edits = next;
    tab.setItem(TRAY_KEY, formatEdits(next));
    notify();
  };
  return {
    /** Referentially stable until the edits change. An edit without a run is one of the run that is shown. */
    read: () => edits,
    /** For this tab only. */
    write,
    /** For this tab, the other tabs, and tabs opened later. */
    share: (next: readonly Edit[]) => {
      write(next);
      shared.setItem(TRAY_KEY, formatEdits(next));
    },
    /** Takes over what another tab shared. */
    follow: () => write(parseEdits(shared.getItem(TRAY_KEY) ?? "")),
    subscribe,
  };
}

export type TrayStore = ReturnType<typeof createTrayStore>;

/** A run as the tray needs it. */
interface TrayRun {
  readonly name: string;
  readonly language_model_name: string;
  readonly layer: number;
}

/** Whether an edit of `run` can be made beside those of `current`: another layer of the same language model. */
function isCombined(run: string, current: TrayRun, runs: readonly TrayRun[]): boolean {
  if (run === current.name) return true;
  const other = runs.find(({ name }) => name === run);
  return other?.language_model_name === current.language_model_name && other.layer !== current.layer;
}

export function viewFrom(edits: readonly Edit[], current: TrayRun, runs: readonly TrayRun[]) {
  /** Edits that can be made together with those of the current run, which they do not name. */
  const shown: Edit[] = [];
  /** Edits of other language models, or of other runs of the same layer: kept until their run is shown. */
  const hidden: Edit[] = [];
  for (const edit of edits) {
    const { run = current.name, ...rest } = edit;
    if (run === current.name) shown.push(rest);
    else if (isCombined(run, current, runs)) shown.push(edit);
    else hidden.push(edit);
  }
  return { shown, hidden };
}

/** The edits, each with the name of its run. */
export function withRuns(edits: readonly Edit[], current: string): readonly Edit[] {
  return edits.map((edit) => ({ ...edit, run: edit.run ?? current }));
}

export function withEdit(edits: readonly Edit[], edit: Edit): readonly Edit[] {
  const key = editKey(edit);
  const known = edits.some((other) => editKey(other) === key);
  return known ? edits.map((other) => (editKey(other) === key ? edit : other)) : [...edits, edit];
}

export function withoutExpert(edits: readonly Edit[], expert: number, run?: string): readonly Edit[] {
  return edits.filter((edit) => edit.expert !== expert || edit.run !== run);
}

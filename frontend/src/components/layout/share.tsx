/** Share: what a page shows, as files for people who have no server. Pages say what that is with `useShare`. */

import { lazy, Suspense, useEffect, useSyncExternalStore } from "react";

import type { SnapshotRequest } from "@/api/types";
import { createListeners } from "@/lib/browser/stores";

import type { Shared } from "./share-menu";

const ShareMenu = lazy(() => import("./share-menu"));

let shared: Shared | null = null;
const { notify, subscribe } = createListeners();

function publish(next: Shared | null) {
  const isChanged = (shared === null) !== (next === null);
  shared = next;
  if (isChanged) notify();
}

/** Offers something in the page bar until the component unmounts. Null while there is nothing yet. */
export function useShare(run: string, request: (() => SnapshotRequest) | null) {
  useEffect(() => publish(request && { run, request }));
  useEffect(() => () => publish(null), []);
}

export function Share() {
  const isShareable = useSyncExternalStore(subscribe, () => shared !== null);
  if (!isShareable) return null;
  return (
    <Suspense>
      <ShareMenu current={() => shared} />
    </Suspense>
  );
}

/** Keeps the tray's edits and those in the URL in sync, in both directions. */

import { useEffect, useRef } from "react";

import { useTray } from "@/components/tray/tray-context";
import { useUrlState } from "@/hooks/use-url-state";
import { type Edit, formatEdits } from "@/lib/edits/edits";
import { STEERING_PARAMS } from "@/pages/steer/steering/steering-params";

interface SharedEdits {
  readonly edits: readonly Edit[];
  /** As one history entry, so that Back undoes it. */
  readonly replaceAll: (edits: readonly Edit[]) => void;
}

export function useSharedEdits(): SharedEdits {
  const tray = useTray();
  const [{ edits: urlEdits }, setParams] = useUrlState(STEERING_PARAMS);
  const urlText = formatEdits(urlEdits);
  const trayText = formatEdits(tray.edits);
  /** URL at the last render, and our own changes that it may not show yet. */
  const history = useRef<{ urlText: string; ownChanges: Set<string> }>({ urlText: "", ownChanges: new Set() });
  useEffect(() => {
    const { urlText: before, ownChanges } = history.current;
    history.current.urlText = urlText;
    if (urlText === trayText) {
      ownChanges.clear();
    } else if (urlText !== before && !ownChanges.has(urlText)) {
      ownChanges.add(trayText); // outdated until the next render, and not to be written to the URL
      tray.replaceAll(urlEdits); // a link or the Back button changed the URL
    } else if (!ownChanges.has(trayText)) {
      ownChanges.add(trayText);
      setParams({ edits: tray.edits });
    }
  }, [urlText, urlEdits, setParams, tray, trayText]);
  const replaceAll = (edits: readonly Edit[]) => {
    history.current.ownChanges.add(formatEdits(edits));
    setParams({ edits }, "push");
    tray.replaceAll(edits);
  };
  return { edits: tray.edits, replaceAll };
}

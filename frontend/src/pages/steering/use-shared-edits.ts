/** The tray's edits, kept equal to those in the address: what one has changed, the other follows. */

import { useEffect, useRef } from "react";

import { useTray } from "@/components/tray/tray-context";
import { type Edit, formatEdits } from "@/lib/edits";
import { useUrlState } from "@/url-state";

import { STEERING_PARAMS } from "./steering-params";

export interface SharedEdits {
  readonly edits: readonly Edit[];
  /** As one step that Back undoes. */
  readonly replaceAll: (edits: readonly Edit[]) => void;
}

export function useSharedEdits(): SharedEdits {
  const tray = useTray();
  const [{ edits: inAddress }, setParams] = useUrlState(STEERING_PARAMS);
  const address = formatEdits(inAddress);
  const wanted = formatEdits(tray.edits);
  /** What the address said last, and what we have written that it may still come to say. */
  const known = useRef<{ address: string; written: Set<string> }>({ address: "", written: new Set() });
  useEffect(() => {
    const { address: before, written } = known.current;
    known.current.address = address;
    if (address === wanted) {
      written.clear();
    } else if (address !== before && !written.has(address)) {
      tray.replaceAll(inAddress); // a link was followed, or Back was pressed
    } else if (!written.has(wanted)) {
      written.add(wanted);
      setParams({ edits: tray.edits });
    }
  }, [address, inAddress, setParams, tray, wanted]);
  const replaceAll = (edits: readonly Edit[]) => {
    known.current.written.add(formatEdits(edits));
    setParams({ edits }, "push");
    tray.replaceAll(edits);
  };
  return { edits: tray.edits, replaceAll };
}

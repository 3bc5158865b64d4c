/** The other layers of a prompt, in the address. */

import type { Param } from "@/hooks/use-url-state";

/** Run names, e.g. `one,other`; null for one run of every other layer, `none` for none. */
export const layersParam: Param<readonly string[] | null> = {
  read: (text) => {
    if (text === null) return null;
    return text === "none" ? [] : text.split(",").filter((name) => name !== "");
  },
  write: (names) => (names === null ? null : names.length === 0 ? "none" : names.join(",")),
};

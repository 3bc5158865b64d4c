/** The button that opens the search, and its key. */

import { createContext, useContext } from "react";

import { Icon } from "@/components/ui/icon";
import { keyCap, SHORTCUTS } from "@/lib/browser/shortcuts";

/** Opens the search. */
export const OpenSearch = createContext<() => void>(() => undefined);

export const SearchButton = () => (
  <button type="button" className="row search search-box" aria-haspopup="dialog" onClick={useContext(OpenSearch)}>
    <Icon name="search" />
    <span className="cut">
      Search<span>{SHORTCUTS.search.what.replace("Search", "")}</span>
    </span>
    <kbd aria-hidden="true">{keyCap("search")}</kbd>
  </button>
);

/** The run whose experts the rows of a map are, where it is not the one that the page is about. */

import { createContext, useContext } from "react";

export const RowsOfRun = createContext<string | undefined>(undefined);

export const useRowsOfRun = () => useContext(RowsOfRun);

/** The run of a heat map's experts, if it is not the page's run. */

import { createContext, useContext } from "react";

export const HeatMapRunContext = createContext<string | undefined>(undefined);

export const useHeatMapRun = () => useContext(HeatMapRunContext);

import { useMemo } from "react";

import { filtersOf } from "@/components/experts/columns";
import { useColumns } from "@/hooks/use-columns";
import { useUrlState } from "@/hooks/use-url-state";

import { boundParams, EXPERTS_PARAMS, type ExpertsView } from "./experts-params";

export function useExpertsView(): ExpertsView {
  const columns = useColumns();
  const filters = useMemo(() => filtersOf(columns), [columns]);
  const [params, setParams] = useUrlState(EXPERTS_PARAMS);
  const [bounds, setBounds] = useUrlState(useMemo(() => boundParams(filters), [filters]));
  return { columns, filters, params, setParams, bounds, setBounds };
}

/** Columns of the experts table for which the run has data. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { expertsQuery } from "@/api/queries";
import type { Column, ExpertRow } from "@/api/types";
import { inTable } from "@/components/experts/columns";

/** The run's expert with the strongest activation; it sets one colour scale for all pages of the table. */
export function useStrongest(run: string): ExpertRow | undefined {
  const { data } = useInfiniteQuery(expertsQuery(run, { sort: "max_activation", order: "desc" }, 1));
  return data?.pages[0]?.experts[0];
}

/** Whether `mxd recurrence` has compared the run with others. */
function useIsCompared(run: string): boolean {
  const { data } = useInfiniteQuery(expertsQuery(run, { sort: "recurrence", order: "desc" }, 1));
  return typeof data?.pages[0]?.experts[0]?.recurrence === "number";
}

/** Without the columns of `mxd ablate` and `mxd recurrence` if they did not run. */
export function useAvailableColumns(run: string, columns: readonly Column[]): readonly Column[] {
  const isAblated = typeof useStrongest(run)?.loss_increase === "number";
  const isCompared = useIsCompared(run);
  return useMemo(() => {
    const isMeasured = { index: true, annotation: true, ablate: isAblated, recurrence: isCompared };
    return columns.filter((column) => inTable(column) && isMeasured[column.measured_by]);
  }, [columns, isAblated, isCompared]);
}

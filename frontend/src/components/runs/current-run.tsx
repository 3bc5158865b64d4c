/** The current run: `run` in the URL, otherwise that of the example on Home, or the newest indexed run. */

import { useQuery } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useMemo } from "react";
import { useMatch } from "react-router";

import { runsQuery, showcaseQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { textParam, useUrlState } from "@/hooks/use-url-state";

interface CurrentRun {
  readonly name: string | null;
  readonly summary: RunSummary | null;
  readonly runs: readonly RunSummary[];
}

const RUN_PARAM = { run: textParam(null) };
const RunContext = createContext<CurrentRun>({ name: null, summary: null, runs: [] });

/** Indexed runs first, then the newest. */
function pickRun(runs: readonly RunSummary[]): RunSummary | null {
  const rank = (run: RunSummary) => (run.indexed_tokens === null ? "0" : "1") + run.started_at;
  return [...runs].sort((a, b) => rank(b).localeCompare(rank(a)))[0] ?? null;
}

export function CurrentRunProvider({ children }: { readonly children: ReactNode }) {
  const [{ run: requestedRun }, setUrl] = useUrlState(RUN_PARAM);
  const pathRun = useMatch("/runs/:run")?.params.run ?? null;
  const { data } = useQuery(runsQuery);
  const runs = useMemo(() => data?.runs ?? [], [data]);
  const isFirst = useMatch("/") !== null && requestedRun === null;
  const example = useQuery({ ...showcaseQuery, enabled: isFirst });
  const shown = runs.find((run) => isFirst && run.name === example.data?.showcase?.session.run);
  const usual = example.isLoading ? null : (shown ?? pickRun(runs));
  const name = pathRun ?? requestedRun ?? usual?.name ?? null;
  useEffect(() => {
    if (pathRun === null && requestedRun === null && name !== null) setUrl({ run: name });
  }, [requestedRun, name, pathRun, setUrl]);
  const value = useMemo(() => ({ name, runs, summary: runs.find((run) => run.name === name) ?? null }), [name, runs]);
  return <RunContext value={value}>{children}</RunContext>;
}

export function useCurrentRun(): CurrentRun {
  return useContext(RunContext);
}

/** Renders its children with the current run, or explains why there is none. */
export function WithRun({ children }: { readonly children: (run: RunSummary) => ReactNode }) {
  const { name, summary, runs } = useCurrentRun();
  const { isPending, error, refetch } = useQuery(runsQuery);
  if (error !== null && runs.length === 0) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (summary !== null) return children(summary);
  if (isPending || (name === null && runs.length > 0)) return <LoadingState label="Loading runs" />;
  if (name === null) {
    return (
      <EmptyState title="No runs yet">
        Train one with <code>mxd train</code>, then index it with <code>mxd index</code>.
      </EmptyState>
    );
  }
  return (
    <EmptyState title={`Run ${name} not found`}>
      Choose another run in the menu of runs{runs.length === 0 ? "" : ` (${runs.length} available)`}.
    </EmptyState>
  );
}

/** The run that every page is about: `run` in the URL, else the newest one that can be browsed. */

import { useQuery } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useMemo } from "react";
import { useMatch } from "react-router";

import { runsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/types";
import { textParam, useUrlState } from "@/url-state";

import { EmptyState, ErrorState, LoadingState } from "./states";

interface CurrentRun {
  readonly name: string | null;
  readonly summary: RunSummary | null;
  readonly runs: readonly RunSummary[];
}

const RUN_PARAM = { run: textParam(null) };
const RunContext = createContext<CurrentRun>({ name: null, summary: null, runs: [] });

/** Indexed before not indexed, then the newest. */
export function pickRun(runs: readonly RunSummary[]): RunSummary | null {
  const rank = (run: RunSummary) => (run.indexed_tokens === null ? "0" : "1") + run.started_at;
  return [...runs].sort((a, b) => rank(b).localeCompare(rank(a)))[0] ?? null;
}

export function CurrentRunProvider({ children }: { readonly children: ReactNode }) {
  const [{ run: asked }, setUrl] = useUrlState(RUN_PARAM);
  const onPath = useMatch("/runs/:run")?.params.run ?? null;
  const { data } = useQuery(runsQuery);
  const runs = useMemo(() => data?.runs ?? [], [data]);
  const name = onPath ?? asked ?? pickRun(runs)?.name ?? null;
  useEffect(() => {
    if (onPath === null && asked === null && name !== null) setUrl({ run: name });
  }, [asked, name, onPath, setUrl]);
  const value = useMemo(() => ({ name, runs, summary: runs.find((run) => run.name === name) ?? null }), [name, runs]);
  return <RunContext value={value}>{children}</RunContext>;
}

export function useCurrentRun(): CurrentRun {
  return useContext(RunContext);
}

/** Renders its children with a run that exists; says what is missing otherwise. */
export function WithRun({ children }: { readonly children: (run: RunSummary) => ReactNode }) {
  const { name, summary, runs } = useCurrentRun();
  const { isPending, error, refetch } = useQuery(runsQuery);
  if (error !== null && runs.length === 0) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (isPending) return <LoadingState label="Loading the runs" />;
  if (summary !== null) return children(summary);
  if (name === null) {
    return (
      <EmptyState title="No run yet">
        Fit one with <code>mxd train</code>, then collect its contexts with <code>mxd index</code>.
      </EmptyState>
    );
  }
  return (
    <EmptyState title={`There is no run ${name}`}>
      Choose another one at the top left{runs.length === 0 ? "" : `: there are ${runs.length}`}.
    </EmptyState>
  );
}

/** Two runs side by side: properties, training curves and matched experts. The Verdict page compares their results. */

import "@/pages/run/run.css";
import "./compare.css";

import { useQuery } from "@tanstack/react-query";

import { runQuery } from "@/api/queries";
import type { RunDetail, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { Curves } from "@/pages/run/curves/curves";

import { COMPARE_PARAMS, type CompareParams, type SetCompareParams } from "./compare-params";
import { FactsPane } from "./facts/facts-pane";
import { Matches } from "./matches/matches";
import { ChooseOtherRun, CompareHead } from "./other-run";

interface SideBySideProps {
  readonly one: RunDetail;
  readonly other: RunDetail;
  readonly params: CompareParams;
  readonly setParams: SetCompareParams;
}

function SideBySide({ one, other, params, setParams }: SideBySideProps) {
  return (
    <>
      <div className="compare-grid">
        <FactsPane one={one} other={other} />
        <div>
          <Curves
            detail={one}
            curve={params.curve}
            compare={other.run.name}
            axisEnd={Math.max(one.run.trained_tokens, other.run.trained_tokens)}
            onCurve={(curve) => setParams({ curve })}
          />
          <p className="compare-key mono" aria-hidden="true">
            <span>{one.run.name}</span>
            <span>{other.run.name}</span>
          </p>
        </div>
      </div>
      <Matches one={one.run} other={other.run} params={params} setParams={setParams} />
    </>
  );
}

interface PairProps extends Pick<SideBySideProps, "params" | "setParams"> {
  readonly run: string;
  readonly other: string;
}

function Pair({ run, other, params, setParams }: PairProps) {
  const queries = [useQuery(runQuery(run)), useQuery(runQuery(other))] as const;
  const failed = queries.find(({ error, data }) => error !== null && data === undefined);
  if (failed !== undefined) return <ErrorState error={failed.error} onRetry={() => void failed.refetch()} />;
  const [one, two] = queries;
  if (one.data === undefined || two.data === undefined) return <LoadingState label="Loading runs" rows={10} />;
  return <SideBySide one={one.data} other={two.data} params={params} setParams={setParams} />;
}

function CompareBody({ run }: { readonly run: RunSummary }) {
  const [params, setParams] = useUrlState(COMPARE_PARAMS);
  const { runs } = useCurrentRun();
  const others = runs.filter(({ name }) => name !== run.name);
  const other = params.with;
  const isItself = other === run.name;
  return (
    <>
      <CompareHead
        run={run}
        other={isItself ? null : other}
        others={others}
        onOther={(name) => setParams({ with: name }, "push")}
        onSwap={() => setParams({ run: other, with: run.name }, "push")}
      />
      {isItself && (
        <EmptyState title={`${run.name} cannot be compared with itself`}>Choose another run above.</EmptyState>
      )}
      {other === null && <ChooseOtherRun run={run} others={others} />}
      {other !== null && !isItself && <Pair run={run.name} other={other} params={params} setParams={setParams} />}
    </>
  );
}

export default function ComparePage() {
  const [params] = useUrlState(COMPARE_PARAMS);
  const { name } = useCurrentRun();
  const title = params.with === null || name === null ? "Compare runs" : `${name} and ${params.with}`;
  return (
    <>
      <title>{`${title} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Runs", to: "/runs" }, { label: "Compare" }]} />
      <WithRun>{(run) => <CompareBody key={run.name} run={run} />}</WithRun>
    </>
  );
}

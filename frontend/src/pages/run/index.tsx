/** One run: what it replaces, how faithful it is, training curves, expert health, steering evaluation and settings. */

import "@/pages/runs/runs.css";
import "./run.css";
import "@/styles/content/evaluation.css";

import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import { runQuery } from "@/api/queries";
import type { RunDetail } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";

import { CompareMenu, Curves } from "./curves/curves";
import { useRunEvents } from "./curves/use-run-events";
import { Faithfulness } from "./faithfulness";
import { Health } from "./health";
import { NextPages } from "./next-pages";
import { RunHead } from "./run-head";
import { RUN_PARAMS } from "./run-params";
import { Settings } from "./settings";
import { Steering } from "./steering";

function RunView({ detail }: { readonly detail: RunDetail }) {
  const [params, setParams] = useUrlState(RUN_PARAMS);
  useRunEvents(detail);
  return (
    <>
      <RunHead detail={detail} />
      <Faithfulness run={detail.run.name} />
      <NextPages run={detail.run} />
      <div className="run-grid">
        <Curves
          detail={detail}
          curve={params.curve}
          compare={params.compare}
          axisEnd={detail.run.target_tokens}
          onCurve={(curve) => setParams({ curve })}
        >
          <CompareMenu
            run={detail.run.name}
            compare={params.compare}
            onCompare={(compare) => setParams({ compare }, "push")}
          />
        </Curves>
        <Health run={detail.run} />
      </div>
      <Steering run={detail.run} />
      <Settings detail={detail} />
    </>
  );
}

export default function RunPage() {
  const { run = "" } = useParams();
  const { data, error, refetch } = useQuery(runQuery(run));
  return (
    <>
      <title>{`${run} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Runs", to: "/runs" }, { label: run }]} />
      {error !== null && data === undefined && (
        <ErrorState error={error} onRetry={() => void refetch()}>
          <Link to="/runs">All runs</Link>
        </ErrorState>
      )}
      {data === undefined && error === null && <LoadingState label="Loading run" rows={10} />}
      {data !== undefined && <RunView detail={data} />}
    </>
  );
}

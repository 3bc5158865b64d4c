/** One run: what it is, how fitting goes, and how its experts are used. */

import "./runs.css";
import "./run.css";

import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";

import { runQuery } from "@/api/queries";
import type { RunDetail } from "@/api/types";
import { PageBar } from "@/components/shell/page-bar";
import { ErrorState, LoadingState } from "@/components/states";
import { useUrlState } from "@/url-state";

import { CompareMenu, Curves } from "./run/curves";
import { Health } from "./run/health";
import { RunFacts } from "./run/run-facts";
import { RunHead } from "./run/run-head";
import { RUN_PARAMS } from "./run/run-params";
import { Steering } from "./run/steering";
import { Settings } from "./run/settings";
import { useRunEvents } from "./run/use-run-events";

function RunView({ detail }: { readonly detail: RunDetail }) {
  const [params, setParams] = useUrlState(RUN_PARAMS);
  useRunEvents(detail);
  return (
    <>
      <RunHead detail={detail} />
      <RunFacts run={detail.run} />
      <div className="run-grid">
        <Curves
          detail={detail}
          curve={params.curve}
          compare={params.compare}
          wanted={detail.run.tokens_wanted}
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
      {detail.run.layer === detail.run.last_layer && <Steering run={detail.run} />}
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
      {error !== null && data === undefined && <ErrorState error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <LoadingState label="Loading the run" rows={10} />}
      {data !== undefined && <RunView detail={data} />}
    </>
  );
}

/** One expert: what it fires on, how often and how strongly, what people say of it. */

import "./expert.css";

import { useQuery } from "@tanstack/react-query";
import { memo, useDeferredValue, useMemo } from "react";
import { useParams } from "react-router";

import { expertQuery } from "@/api/queries";
import type { ExpertDetail, RunSummary } from "@/api/types";
import { useCurrentRun, WithRun } from "@/components/current-run";
import { usePageLinks } from "@/components/links";
import { readPlace, TO_PLACE } from "@/components/list-place";
import { PageBar } from "@/components/shell/page-bar";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { formatCount } from "@/lib/format";
import { useUrlState } from "@/url-state";

import { type ContextsProps, MoreContexts, TopContexts } from "./expert/contexts";
import { DownloadExpert } from "./expert/download-expert";
import { ExpertHead } from "./expert/expert-head";
import { EXPERT_PARAMS } from "./expert/expert-params";
import { useMarker } from "./expert/marker";
import { Influence } from "./expert/influence";
import { hasMatrix, Matrix } from "./expert/matrix";
import { Notes } from "./expert/notes";
import { Similar } from "./expert/similar";
import { Statistics } from "./expert/statistics";
import { TestText } from "./expert/test-text";
import { Together } from "./expert/together";

function Inactive({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title="Never active">
      On none of the {formatCount(run.indexed_tokens ?? 0)} indexed tokens, so there are no contexts to show. Other text
      may open it; the experts most like it, below, say what its gate points at.
    </EmptyState>
  );
}

/** What lies below the strongest contexts. It follows a moment later: going from expert to expert waits for those only. */
const Below = memo(function Below(props: ContextsProps) {
  const { run, detail, params, setParams, onHover } = props;
  const { row } = detail;
  return (
    <>
      {row.active_tokens > 0 && <MoreContexts {...props} />}
      <TestText
        key={row.expert}
        run={run}
        expert={row.expert}
        largest={row.largest}
        text={params.test}
        onText={(test) => setParams({ test })}
        onHover={onHover}
      />
      {row.active_tokens > 0 && <Together run={run} expert={row.expert} />}
      <div className="expert-foot">
        <Similar run={run} expert={row.expert} by={params.by} onBy={(by) => setParams({ by })} />
        <Notes key={row.expert} run={run} expert={row.expert} note={detail.note} />
      </div>
    </>
  );
});

function ExpertBody({ run, detail }: { readonly run: RunSummary; readonly detail: ExpertDetail }) {
  const [params, setParams] = useUrlState(EXPERT_PARAMS);
  const { row } = detail;
  const { marker, onHover } = useMarker(run.name, row.expert, params.lock, params.draw);
  const shown = useMemo(
    () => ({ run: run.name, detail, params, setParams, onHover }),
    [run, detail, params, setParams, onHover],
  );
  const later = useDeferredValue(shown);
  return (
    <div className="expert-columns">
      <Statistics run={run} row={row} marker={marker} />
      <div className="expert-main">
        {row.active_tokens === 0 ? (
          <Inactive run={run} />
        ) : (
          <>
            <Influence run={run.name} expert={row.expert} />
            {hasMatrix(run) && <Matrix key={row.expert} run={run.name} expert={row.expert} />}
            <TopContexts {...shown} />
          </>
        )}
        <Below {...later} />
      </div>
    </div>
  );
}

function ExpertView({ run, expert }: { readonly run: RunSummary; readonly expert: number }) {
  const { data, error, refetch } = useQuery(expertQuery(run.name, expert));
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (data === undefined) return <LoadingState label="Loading the expert" rows={12} />;
  return (
    <>
      <title>{`${data.row.label ?? `Expert ${expert}`} · MxD Explorer`}</title>
      <ExpertHead key={expert} run={run.name} detail={data} />
      <ExpertBody run={run} detail={data} />
    </>
  );
}

/** Back to the table: as it was last, where it has been open, and to the same place in it. */
function useWayBack() {
  const links = usePageLinks();
  const { name: run } = useCurrentRun();
  const place = run === null ? null : readPlace(run);
  return place === null ? { to: links.page("experts") } : { to: `/experts${place.search}`, state: TO_PLACE };
}

export default function ExpertPage() {
  const { expert = "" } = useParams();
  const wayBack = useWayBack();
  return (
    <>
      <title>{`Expert ${expert} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Experts", ...wayBack }, { label: expert }]}>
        <DownloadExpert expert={expert} />
      </PageBar>
      <WithRun>
        {(run) =>
          /^\d+$/.test(expert) ? (
            <ExpertView run={run} expert={Number(expert)} />
          ) : (
            <EmptyState title={`${expert} is no expert`}>
              Experts go by number, from 0 to {run.num_experts - 1}.
            </EmptyState>
          )
        }
      </WithRun>
    </>
  );
}

/** One expert: what it fires on, how often and how strongly, its effects, and its label and notes. */

import "./expert.css";

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { memo, useDeferredValue, useMemo } from "react";
import { Link, useParams } from "react-router";

import { expertQuery, writesQuery } from "@/api/queries";
import type { ExpertDetail, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useShare } from "@/components/layout/share";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { readTablePosition, RESTORE_POSITION } from "@/lib/browser/table-position";
import { formatCount } from "@/lib/text/format";

import { DownloadExpert } from "./download/download-expert";
import { hasMatrix, WeightAnalysis } from "./effects/matrix";
import { type ContextsProps, MoreContexts, TopContexts } from "./examples/contexts";
import { EXPERT_PARAMS } from "./expert-params";
import { ExpertHead } from "./head/expert-head";
import { Notes } from "./head/notes";
import { Coactivation } from "./related/coactivation";
import { Similar } from "./related/similar";
import { Statistics } from "./statistics/statistics";
import { useHistogramMarker } from "./statistics/use-histogram-marker";
import { TestText } from "./test-text/test-text";

function DeadExpert({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title="Dead expert">
      It is inactive on all {formatCount(run.indexed_tokens ?? 0)} indexed tokens, so it has no examples. It may fire on
      other text: test one below.
    </EmptyState>
  );
}

interface LowerSectionsProps extends ContextsProps {
  readonly withMatrix: boolean;
}

/** Everything below the examples, rendered deferred so that navigating between experts stays fast. */
const LowerSections = memo(function Lower(props: LowerSectionsProps) {
  const { run, detail, params, setParams, onHover, withMatrix } = props;
  const { row } = detail;
  return (
    <div className="expert-main expert-lower">
      <TestText
        key={row.expert}
        run={run}
        expert={row.expert}
        largest={row.max_activation}
        text={params.test}
        onText={(test) => setParams({ test })}
        onHover={onHover}
      />
      {row.active_tokens > 0 && <Coactivation key={`coactivation ${row.expert}`} run={run} expert={row.expert} />}
      {withMatrix && <WeightAnalysis key={`weights ${row.expert}`} run={run} expert={row.expert} />}
      <div className="expert-foot">
        <Similar run={run} expert={row.expert} by={params.by} onBy={(by) => setParams({ by })} />
        <Notes key={row.expert} run={run} expert={row.expert} note={detail.note} />
      </div>
    </div>
  );
});

/** Examples, statistics, other sections: the order of reading, and the order on a phone. */
function ExpertBody({ run, detail }: { readonly run: RunSummary; readonly detail: ExpertDetail }) {
  const [params, setParams] = useUrlState(EXPERT_PARAMS);
  const { row } = detail;
  const { marker, onHover } = useHistogramMarker(run.name, row.expert, params.lock, params.seed);
  const sectionProps = useMemo(
    () => ({ run: run.name, detail, params, setParams, onHover }),
    [run, detail, params, setParams, onHover],
  );
  const deferredProps = useDeferredValue(sectionProps);
  return (
    <div className="expert-columns">
      <div className="expert-main expert-examples">
        {row.active_tokens === 0 ? <DeadExpert run={run} /> : <TopContexts {...sectionProps} />}
        {deferredProps.detail.row.active_tokens > 0 && <MoreContexts {...deferredProps} />}
      </div>
      <Statistics run={run} detail={detail} marker={marker} />
      <LowerSections {...deferredProps} withMatrix={hasMatrix(run)} />
    </div>
  );
}

function ExpertView({ run, expert }: { readonly run: RunSummary; readonly expert: number }) {
  const { data, error, refetch } = useQuery(expertQuery(run.name, expert));
  const links = usePageLinks();
  const queries = useQueryClient();
  const share = () => {
    const writes = queries.getQueryData(writesQuery(run.name, expert).queryKey)?.writes;
    return { kind: "expert", expert, promoted: writes?.promoted ?? [], suppressed: writes?.suppressed ?? [] } as const;
  };
  useShare(run.name, data === undefined ? null : share);
  if (error !== null)
    return (
      <>
        <h1 className="sr">Expert {expert}</h1>
        <ErrorState error={error} onRetry={() => void refetch()}>
          <Link to={links.page("experts")}>All experts of {run.name}</Link>
        </ErrorState>
      </>
    );
  if (data === undefined) return <LoadingState label="Loading expert" rows={12} />;
  return (
    <>
      <title>{`${data.row.label ?? `Expert ${expert}`} · MxD Explorer`}</title>
      <ExpertHead key={expert} run={run.name} detail={data} />
      <ExpertBody run={run} detail={data} />
    </>
  );
}

/** Link back to the experts table with its last filters and scroll position. */
function useBackLink() {
  const links = usePageLinks();
  const { name: run } = useCurrentRun();
  const position = run === null ? null : readTablePosition(run);
  return position === null
    ? { to: links.page("experts") }
    : { to: `/experts${position.search}`, state: RESTORE_POSITION };
}

export default function ExpertPage() {
  const { expert = "" } = useParams();
  const backLink = useBackLink();
  return (
    <>
      <title>{`Expert ${expert} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Experts", ...backLink }, { label: expert }]}>
        <DownloadExpert expert={expert} />
      </PageBar>
      <WithRun>
        {(run) =>
          /^\d+$/.test(expert) ? (
            <ExpertView run={run} expert={Number(expert)} />
          ) : (
            <EmptyState title={`Expert ${expert} not found`}>
              Experts are numbered from 0 to {run.num_experts - 1}.
            </EmptyState>
          )
        }
      </WithRun>
    </>
  );
}

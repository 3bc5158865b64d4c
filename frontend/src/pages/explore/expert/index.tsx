/** One expert: what it fires on, what it writes, what steering with it does, and details. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { memo, useDeferredValue, useMemo, useState } from "react";
import { Link, useParams } from "react-router";

import { expertQuery, writesQuery } from "@/api/queries";
import type { ExpertDetail, RunSummary } from "@/api/types";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { Missing } from "@/components/layout/missing";
import { useShare } from "@/components/layout/share";
import { useCurrentRun, WithRun } from "@/components/runs/current-run";
import { usePageLinks } from "@/components/runs/page-links";
import { UnfoldButton } from "@/components/ui/button";
import { EmptyState, ErrorState, LoadingState } from "@/components/ui/states";
import { useUrlState } from "@/hooks/use-url-state";
import { formatCount } from "@/lib/text/format";
import { readTablePosition, RESTORE_POSITION } from "@/pages/explore/experts/table";

import { describeSample, TokensAndActivations, Writes } from "./answers";
import {
  CausalImportance,
  Facts,
  hasMatrix,
  LabelQuality,
  TestText,
  useHistogramMarker,
  WeightAnalysis,
} from "./details";
import { Examples, type ExamplesProps } from "./examples";
import { EXPERT_PARAMS, showsAll } from "./expert-params";
import { ExpertHead } from "./head";
import { Recurrence, Similar } from "./related";
import { SteerHere } from "./steer-here";

interface SectionProps extends ExamplesProps {
  readonly summary: RunSummary;
  /** Activation to mark in the histogram. */
  readonly marker: number | null;
}

/** The remaining sections, in columns of equal height. */
function DetailSections({ summary, marker, ...props }: SectionProps) {
  const { run, detail } = props;
  const { row, recurrence, ablation } = detail;
  return (
    <>
      <TestText {...props} />
      <div className="detail-columns">
        <TokensAndActivations row={row} marker={marker} />
        <Facts row={row} />
        <Similar {...props} />
        {ablation !== null && <CausalImportance ablation={ablation} />}
        <LabelQuality detail={detail} />
        {recurrence !== null && <Recurrence recurrence={recurrence} row={row} />}
      </div>
      {hasMatrix(summary) && <WeightAnalysis run={run} expert={row.expert} />}
    </>
  );
}

/** Closed at first. The sections of an open one are rendered deferred, so that moving between experts stays fast. */
const Details = memo(function Details(props: SectionProps) {
  const { params, setParams, detail } = props;
  const isOpen = params.details || params.test !== "";
  return (
    <section className="expert-details" aria-label="Details">
      <UnfoldButton isOpen={isOpen} onOpen={(details) => setParams({ details, ...(isOpen && { test: "" }) })}>
        <b>Details</b>{" "}
        <span className="dim">
          test on a text, tokens, activations, statistics, label scores, similar experts, weights
        </span>
      </UnfoldButton>
      {isOpen && <DetailSections key={detail.row.expert} {...props} />}
    </section>
  );
});

/** What it fires on and what it writes, texts steered with it (first if the link asks for them), details. */
function ExpertBody({ run, detail }: { readonly run: RunSummary; readonly detail: ExpertDetail }) {
  const [given, setParams] = useUrlState(EXPERT_PARAMS);
  const params = useMemo(() => ({ ...given, all: showsAll(given) }), [given]);
  const { row } = detail;
  const { marker, onHover } = useHistogramMarker(run.name, row.expert, params.lock, params.seed);
  const sectionProps = useMemo(
    () => ({ run: run.name, detail, params, setParams, onHover }),
    [run, detail, params, setParams, onHover],
  );
  const deferredProps = useDeferredValue(sectionProps);
  const [steersFirst] = useState(params.steer !== "");
  const answers = (
    <div className="answers">
      <section className="expert-examples" aria-label="Examples">
        <Examples {...sectionProps} />
      </section>
      <Writes run={run.name} detail={detail} />
    </div>
  );
  return (
    <div className="expert-body">
      {row.active_tokens === 0 ? (
        <EmptyState title="Dead expert">
          It is inactive on all {formatCount(run.indexed_tokens ?? 0)} indexed tokens, so it has no examples. It may
          fire on other text: test one in the details.
        </EmptyState>
      ) : (
        <>
          {!steersFirst && answers}
          <SteerHere
            key={row.expert}
            run={run.name}
            detail={detail}
            prompt={params.steer}
            onPrompt={(steer) => setParams({ steer })}
          />
          {steersFirst && answers}
        </>
      )}
      <Details {...deferredProps} summary={run} marker={marker} />
    </div>
  );
}

function ExpertView({ run, expert }: { readonly run: RunSummary; readonly expert: number }) {
  const { data, error, refetch } = useQuery(expertQuery(run.name, expert));
  const queries = useQueryClient();
  const share = () => {
    const computed = queries.getQueryData(writesQuery(run.name, expert).queryKey);
    const ablation = data?.ablation ?? null;
    const { promoted = [], suppressed = [] } = ablation ?? computed ?? {};
    const note = `${describeSample(ablation, computed)}. ${computed?.controls.sentence ?? ""}`.trim();
    return { kind: "expert", expert, promoted, suppressed, ...(promoted.length > 0 && { note }) } as const;
  };
  useShare(run.name, data === undefined ? null : share);
  if (error !== null)
    return (
      <>
        <h1 className="sr">Expert {expert}</h1>
        <ErrorState error={error} onRetry={() => void refetch()} />
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
      <PageBar crumbs={[{ label: "Experts", ...backLink }, { label: expert }]} />
      <WithRun>
        {(run) =>
          /^\d+$/.test(expert) && Number(expert) < run.num_experts ? (
            <ExpertView run={run} expert={Number(expert)} />
          ) : (
            <Missing title={`Expert ${expert} not found`}>
              The experts of <span className="mono">{run.name}</span> are numbered from 0 to {run.num_experts - 1}.{" "}
              <Link to={backLink.to}>All experts</Link>, or search above.
            </Missing>
          )
        }
      </WithRun>
    </>
  );
}

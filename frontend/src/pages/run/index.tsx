/** One run: what it replaces, how faithful it is, training curves, expert health, steering evaluation and settings. */

import "@/pages/runs/runs.css";
import "./run.css";
import "@/styles/content/evaluation.css";

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, useParams } from "react-router";

import { ApiError } from "@/api/http";
import { figureQuery, runQuery } from "@/api/queries";
import type { RunDetail, RunSummary } from "@/api/types";
import { Missing } from "@/components/layout/missing";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import {
  activeK,
  hasTokenCount,
  inUnits,
  methodName,
  othersOf,
  shortOrigin,
  shortSource,
  unitName,
} from "@/components/runs/run-labels";
import { RunPicker } from "@/components/runs/run-picker";
import { Term } from "@/components/terms/term";
import { Command } from "@/components/ui/copy-button";
import { PaneHead } from "@/components/ui/pane-head";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { useNow } from "@/hooks/use-values";
import { useUrlState } from "@/hooks/use-url-state";
import { formatAgo, formatCompact, formatCount, formatDuration } from "@/lib/text/format";
import { StatusWord } from "@/pages/runs/runs-table";

import { Curves, RUN_PARAMS } from "./curves";
import { Faithfulness, Health, RunFigure } from "./health";

type Setting = RunDetail["config"][string] | undefined;

/** An empty list is no setting. */
const settingText = (value: Setting) =>
  value === null || value === undefined || value === "[]" ? "none" : String(value);

export function Settings({ detail }: { readonly detail: RunDetail }) {
  const entries = Object.entries(detail.config).sort(([a], [b]) => a.localeCompare(b));
  return (
    <details className="settings more-metrics">
      <summary>
        Settings <span className="note">as recorded with the run</span>
      </summary>
      <dl>
        {entries.map(([name, value]) => (
          <div key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd className="mono">{settingText(value)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/** What the run replaces and what it was trained on. */
function RunFacts({ run }: { readonly run: RunSummary }) {
  const facts: readonly (readonly [ReactNode, ReactNode])[] = [
    [<Term id="method">Method</Term>, methodName(run.method)],
    [
      "Replaces",
      <>
        MLP of layer {run.layer}, <span className="mono">{run.language_model_name}</span>
      </>,
    ],
    [
      <Term id="k">Active per token</Term>,
      <>
        {run.has_top_k ? activeK(run) : "above a threshold"} of{" "}
        <Link className="link" to={pageLinks(run.name).page("experts")}>
          {formatCount(run.num_experts)} {unitName(run)}
        </Link>
      </>,
    ],
    ["Parameters", formatCompact(run.parameters)],
    run.origin === null
      ? [
          "Trained on",
          <span title={run.text}>
            {hasTokenCount(run) && `${formatCompact(run.trained_tokens)} tokens of `}
            <span className="mono">{shortSource(run.text)}</span>, seed {run.seed}
          </span>,
        ]
      : ["Imported from", <span className="mono">{shortOrigin(run.origin)}</span>],
  ];
  return (
    <dl className="wrap run-facts">
      {facts.map(([name, value], i) => (
        <div key={i}>
          <dt className="ink2">{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

const START_FORMAT = {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  timeZoneName: "short",
} as const;

function Progress({ run }: { readonly run: RunSummary }) {
  if (!hasTokenCount(run)) return null;
  const share = Math.min(1, run.trained_tokens / run.target_tokens);
  const rate = run.last_metric?.tokens_per_second ?? 0;
  return (
    <div className="run-progress">
      <div className="row ink2">
        <b>{formatCompact(run.trained_tokens)}</b>
        <span>of {formatCompact(run.target_tokens)} tokens</span>
        <span className="grow" />
        {rate > 0 && (
          <>
            <b>{formatCount(rate)}</b>
            <span>tokens/s</span>
          </>
        )}
        {run.status === "training" && rate > 0 && (
          <>
            <b>{formatDuration((run.target_tokens - run.trained_tokens) / rate)}</b>
            <span>left</span>
          </>
        )}
      </div>
      <progress value={share} max={1} aria-label="Training progress" />
    </div>
  );
}

function Resume({ detail }: { readonly detail: RunDetail }) {
  const { status } = detail.run;
  if (status !== "stopped" && status !== "failed") return null;
  return (
    <section className="stack run-resume" aria-label="Resume training">
      <p className={status === "failed" ? "bad" : "ink2"}>
        {detail.error ?? "Training stopped early. Resume from the last checkpoint with:"}
      </p>
      <Command text={detail.resume_command} />
    </section>
  );
}

/** Name, status and progress of a run, what it replaces, and the command that resumes it. */
function RunHead({ detail }: { readonly detail: RunDetail }) {
  const { run } = detail;
  const now = useNow(1000);
  return (
    <>
      <section className="row wrap run-head">
        <div className="run-title">
          <p className="ink2">
            <StatusWord status={run.status} />, started {new Date(run.started_at).toLocaleString("en-GB", START_FORMAT)}
            {run.status === "training" && <span className="dim">, last step {formatAgo(run.updated_at, now)}</span>}
          </p>
          <h1 className="mono">{run.name}</h1>
        </div>
        {run.status !== "finished" && <Progress run={run} />}
      </section>
      <RunFacts run={run} />
      <Resume detail={detail} />
    </>
  );
}

/** Steering evaluation of a sample of the run's experts, with baselines; Evaluate has the commands for it. */
function Steering({ run }: { readonly run: RunSummary }) {
  const { data } = useQuery({ ...figureQuery("steering", { run: run.name }), enabled: run.indexed_tokens !== null });
  if (run.indexed_tokens === null || data?.total === 0) return null;
  return (
    <section className="pane run-part">
      <PaneHead
        title="Steering"
        note={inUnits("do experts change texts more than random experts and random directions?", run)}
      />
      <RunFigure run={run.name} name="steering" height={420} />
    </section>
  );
}

/** While the run is in training. */
const REFRESH_MS = 2000;

function RunView({ detail }: { readonly detail: RunDetail }) {
  const [params, setParams] = useUrlState(RUN_PARAMS);
  const others = othersOf(detail.run, useCurrentRun().runs);
  return (
    <>
      <RunHead detail={detail} />
      <div className="run-grid">
        <Faithfulness run={detail.run} />
        <Curves
          detail={detail}
          curve={params.curve}
          compare={params.compare}
          refetchInterval={detail.run.status === "training" && REFRESH_MS}
          onCurve={(curve) => setParams({ curve })}
        >
          {others.length > 0 && (
            <RunPicker
              label="Compare with"
              runs={others}
              value={params.compare}
              none="Compare"
              onChange={(compare) => setParams({ compare }, "push")}
            />
          )}
        </Curves>
      </div>
      <Health run={detail.run} />
      <Steering run={detail.run} />
      <Settings detail={detail} />
    </>
  );
}

export default function RunPage() {
  const { run = "" } = useParams();
  const { data, error, refetch } = useQuery({
    ...runQuery(run),
    refetchInterval: ({ state }) => state.data?.run.status === "training" && REFRESH_MS,
  });
  const isMissing = error instanceof ApiError && error.status === 404;
  return (
    <>
      <title>{`${run} · MxD Explorer`}</title>
      <PageBar crumbs={[{ label: "Runs", to: "/runs" }, { label: run }]} />
      {isMissing && (
        <Missing title={`Run ${run} not found`}>
          No run of this name is in the database. <Link to="/runs">All runs</Link>, or search above.
        </Missing>
      )}
      {error !== null && !isMissing && data === undefined && (
        <ErrorState error={error} onRetry={() => void refetch()} />
      )}
      {data === undefined && error === null && <LoadingState label="Loading run" rows={10} />}
      {data !== undefined && <RunView detail={data} />}
    </>
  );
}

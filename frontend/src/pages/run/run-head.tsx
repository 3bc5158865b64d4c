/** Name, status and progress of a run, what it replaces, and the command that resumes it. */

import type { RunDetail, RunSummary } from "@/api/types";
import { hasTokenCount } from "@/components/runs/run-labels";
import { Command } from "@/components/ui/copyable-command";
import { useNow } from "@/hooks/use-now";
import { formatAgo, formatCompact, formatCount, formatDuration } from "@/lib/text/format";
import { StatusWord } from "@/pages/runs/status-word";

import { RunSummaryText } from "./run-summary";

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
  const share = run.target_tokens > 0 ? Math.min(1, run.trained_tokens / run.target_tokens) : 0;
  const rate = run.last_metric?.tokens_per_second ?? 0;
  const secondsLeft = rate > 0 ? (run.target_tokens - run.trained_tokens) / rate : null;
  return (
    <div className="run-progress">
      <div className="run-progress-numbers">
        <b>{formatCompact(run.trained_tokens)}</b>
        <span>of {formatCompact(run.target_tokens)} tokens</span>
        <span className="grow" />
        {rate > 0 && (
          <>
            <b>{formatCount(rate)}</b>
            <span>tokens/s</span>
          </>
        )}
        {run.status === "training" && secondsLeft !== null && (
          <>
            <b>{formatDuration(secondsLeft)}</b>
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
    <section className="run-resume" aria-label="Resume training">
      <p className={status === "failed" ? "bad" : "ink2"}>
        {detail.error ?? "Training stopped early. Resume from the last checkpoint with:"}
      </p>
      <Command text={detail.resume_command} />
    </section>
  );
}

export function RunHead({ detail }: { readonly detail: RunDetail }) {
  const { run } = detail;
  const now = useNow(1000);
  return (
    <>
      <section className="run-head">
        <div className="run-title">
          <p className="run-status">
            <StatusWord status={run.status} />, started {new Date(run.started_at).toLocaleString("en-GB", START_FORMAT)}
            {run.status === "training" && <span className="dim">, last step {formatAgo(run.updated_at, now)}</span>}
          </p>
          <h1 className="mono">{run.name}</h1>
          <RunSummaryText run={run} />
        </div>
        {run.status !== "finished" && <Progress run={run} />}
      </section>
      <Resume detail={detail} />
    </>
  );
}

/** Name and state of a run, how far it is, and the command that goes on where it stopped. */

import type { RunDetail, RunSummary } from "@/api/types";
import { Command } from "@/components/command";
import { useNow } from "@/components/now";
import { saysTokens } from "@/components/run-words";
import { formatAgo, formatCompact, formatCount, formatDuration } from "@/lib/format";

import { StatusWord } from "../runs/status-word";

function Progress({ run }: { readonly run: RunSummary }) {
  if (!saysTokens(run)) return null;
  const share = run.tokens_wanted > 0 ? Math.min(1, run.tokens_done / run.tokens_wanted) : 0;
  const rate = run.last_metric?.tokens_per_second ?? 0;
  const left = rate > 0 ? (run.tokens_wanted - run.tokens_done) / rate : null;
  return (
    <div className="run-progress">
      <div className="run-progress-words">
        <b>{formatCompact(run.tokens_done)}</b>
        <span>of {formatCompact(run.tokens_wanted)} tokens</span>
        <span className="grow" />
        {rate > 0 && (
          <>
            <b>{formatCount(rate)}</b>
            <span>tokens/s</span>
          </>
        )}
        {run.status === "training" && left !== null && (
          <>
            <b>{formatDuration(left)}</b>
            <span>left</span>
          </>
        )}
      </div>
      <progress value={share} max={1} aria-label="Tokens done" />
    </div>
  );
}

function Resume({ detail }: { readonly detail: RunDetail }) {
  const { status } = detail.run;
  if (status !== "stopped" && status !== "failed") return null;
  return (
    <section className="run-resume" aria-label="How to go on">
      <p className={status === "failed" ? "bad" : "ink2"}>
        {detail.error ?? "It stopped before its last token. Nothing is lost: it goes on from its last checkpoint with"}
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
        <div>
          <p className="run-status">
            <StatusWord status={run.status} />, started{" "}
            {new Date(run.started_at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}
            {run.status === "training" && <span className="dim">, last step {formatAgo(run.updated_at, now)}</span>}
          </p>
          <h1 className="mono">{run.name}</h1>
        </div>
        <Progress run={run} />
      </section>
      <Resume detail={detail} />
    </>
  );
}

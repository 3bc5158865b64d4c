/** What the expert writes: tokens that it promotes and suppresses, computed now or measured, beside a random expert. */

import "./writes.css";

import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { streamAblation } from "@/api/http/stream";
import { expertQuery, writesQuery } from "@/api/queries";
import type { Ablation, AblationProgressEvent, AblationStoredEvent, ExpertDetail, TokenEffect } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { Remaining } from "@/components/ui/remaining";
import { ErrorState } from "@/components/ui/states";
import { useStreamedWork } from "@/hooks/use-streamed-work";
import { formatCount, formatSigned } from "@/lib/text/format";

const MAX_TOKENS = 6;
const EXAMPLES_PER_STEP = 2;

interface TokensProps {
  readonly title: string;
  /** Null while they are computed: the rows are there already, so that nothing moves when their words come. */
  readonly tokens: readonly TokenEffect[] | null;
  readonly largestChange: number;
  readonly side: "up" | "down";
}

function Tokens({ title, tokens, largestChange, side }: TokensProps) {
  return (
    <table className={`written ${side}`} data-pending={tokens === null || undefined}>
      <thead>
        <tr>
          <th scope="col">{title}</th>
          <th scope="col" className="num" colSpan={2}>
            Δ log p <span className="unit">nats</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {Array.from({ length: MAX_TOKENS }, (_, i) => tokens?.[i]).map((token, i) => (
          <tr key={i}>
            <td className="what">{token !== undefined && <TokenChip text={token.text} />}</td>
            <td className="b" aria-hidden="true">
              <i style={{ width: `${(100 * Math.abs(token?.change ?? 0)) / largestChange}%` }} />
            </td>
            <td className="num">{token !== undefined && formatSigned(token.change, 2)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Why the tokens may be trusted, and how far. */
const BADGES = {
  measured: "Mean over its activations of all strengths. The effect is at least twice a random expert’s.",
  "direct only":
    "Effect of its output on the next token, without the later layers. It is at least twice a random expert’s.",
  "no more than a random expert":
    "The largest rise is less than twice that of a random expert of similar density: do not read a meaning into it.",
} as const;

interface WrittenProps {
  /** Null while they are computed. */
  readonly writes: Pick<Ablation, "promoted" | "suppressed"> | null;
  readonly random: { readonly expert: number; readonly largest: number | null } | null;
  readonly examples: string;
  readonly badge: keyof typeof BADGES | null;
  readonly children?: ReactNode;
}

function Written({ writes, random, examples, badge, children }: WrittenProps) {
  const links = usePageLinks();
  const changes = [...(writes?.promoted ?? []), ...(writes?.suppressed ?? [])].map((token) => Math.abs(token.change));
  const largestChange = Math.max(1e-9, ...changes);
  return (
    <section className="answer writes" aria-label="Writes" aria-busy={writes === null}>
      <div className="pane-h wrap">
        <h2>
          <Term id="direct_logit_effect">Writes</Term>
        </h2>
        <span className="badge" title={badge === null ? undefined : BADGES[badge]} data-kind={badge ?? undefined}>
          {badge ?? "computing"}
        </span>
        <span className="note">{examples}</span>
      </div>
      <div className="answer-halves">
        <Tokens title="Promotes" tokens={writes?.promoted ?? null} largestChange={largestChange} side="up" />
        <Tokens title="Suppresses" tokens={writes?.suppressed ?? null} largestChange={largestChange} side="down" />
      </div>
      <p className="writes-foot">
        {children}
        {writes === null && <span className="dim">The same for a random expert …</span>}
        {random !== null && (
          <span className="dim">
            Random expert{" "}
            <Link className="link" to={links.expert(random.expert)}>
              {random.expert}
            </Link>
            {random.largest === null ? " of similar density" : `: largest rise ${formatSigned(random.largest, 2)}`}
          </span>
        )}
      </p>
    </section>
  );
}

const largestRise = ({ promoted }: Pick<Ablation, "promoted">) => Math.max(0, ...promoted.map((token) => token.change));

/** The stored mean over all activations. */
function StoredWrites({ run, ablation }: { readonly run: string; readonly ablation: Ablation }) {
  const { data } = useQuery(expertQuery(run, ablation.random_expert));
  const other = data?.ablation ?? null;
  return (
    <Written
      writes={ablation}
      random={{ expert: ablation.random_expert, largest: other === null ? null : largestRise(other) }}
      examples={`mean over ${formatCount(ablation.examples)} examples of all strengths`}
      badge={ablation.exceeds_random ? "measured" : "no more than a random expert"}
    />
  );
}

/** Measures the effects of the expert on the server and stores them, with progress. */
function Measure({ run, expert }: ExpertProps) {
  const queries = useQueryClient();
  const work = useStreamedWork<null, AblationProgressEvent, AblationStoredEvent>(
    (_, signal) => streamAblation(run, expert, signal),
    () => queries.invalidateQueries({ queryKey: ["run", run] }),
  );
  const { done = 0, total = 0 } = work.progress ?? {};
  if (work.status === "working")
    return (
      <span className="measuring" role="status">
        <Button size="small" icon="stop" onClick={work.stop}>
          Stop
        </Button>
        <progress aria-label="Measured examples" {...(done > 0 && { value: done / total })} />
        <span className="dim num">
          {done} of {total || "…"} examples
          <Remaining done={done} total={total} every={EXAMPLES_PER_STEP} />
        </span>
      </span>
    );
  return (
    <>
      <Button
        size="small"
        icon="chart"
        title="Ablates and amplifies it on examples of all strengths; a few seconds on a CPU"
        onClick={() => work.start(null)}
      >
        Measure this expert
      </Button>
      {work.failure !== null && <span className="bad">{work.failure}</span>}
    </>
  );
}

/** Computed now on its strongest examples. */
function WritesNow({ run, expert }: ExpertProps) {
  const { data, error, refetch } = useQuery(writesQuery(run, expert));
  if (error !== null)
    return (
      <section className="answer" aria-label="Writes">
        <ErrorState error={error} onRetry={() => void refetch()} />
      </section>
    );
  const { writes = null, random = null, exceeds_random: exceeds } = data ?? {};
  return (
    <Written
      writes={writes}
      random={random === null ? null : { expert: random.expert, largest: largestRise(random) }}
      examples={writes === null ? "on its strongest examples" : `on ${writes.examples} of its strongest examples`}
      badge={writes === null ? null : exceeds ? "direct only" : "no more than a random expert"}
    >
      <Measure run={run} expert={expert} />
    </Written>
  );
}

interface ExpertProps {
  readonly run: string;
  readonly expert: number;
}

export function Writes({ run, detail: { row, ablation } }: { readonly run: string; readonly detail: ExpertDetail }) {
  return ablation === null ? (
    <WritesNow key={row.expert} run={run} expert={row.expert} />
  ) : (
    <StoredWrites run={run} ablation={ablation} />
  );
}

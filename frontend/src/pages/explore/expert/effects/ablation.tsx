/** What the expert writes, and the measured effect of ablating or amplifying it, with baselines. */

import "./ablation.css";

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { useMeasureAblation } from "@/api/mutations";
import { ablationQuery, writesQuery } from "@/api/queries";
import type { Ablation, TokenEffect } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";

const MAX_TOKENS = 6;

function largestEffect({ promoted }: Pick<Ablation, "promoted">): number {
  return Math.max(0, ...promoted.map((token) => token.change));
}

interface TokensProps {
  readonly title: string;
  readonly tokens: readonly TokenEffect[];
  readonly largestChange: number;
  readonly side: "up" | "down";
}

function Tokens({ title, tokens, largestChange, side }: TokensProps) {
  return (
    <table className={`ablation-tokens ${side}`}>
      <thead>
        <tr>
          <th>{title}</th>
          <th className="num" colSpan={2}>
            Δ log p <span className="unit">nats</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {tokens.slice(0, MAX_TOKENS).map((token) => (
          <tr key={token.id}>
            <td className="what">
              <TokenChip text={token.text} />
            </td>
            <td className="b" aria-hidden="true">
              <i style={{ width: `${(100 * Math.abs(token.change)) / largestChange}%` }} />
            </td>
            <td className="num">{formatSigned(token.change, 3)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface WritesProps {
  readonly writes: Pick<Ablation, "promoted" | "suppressed">;
  readonly random: Pick<Ablation, "promoted"> | null;
  readonly randomExpert: number | null;
  readonly examples: string;
  readonly badge: string;
  readonly children?: ReactNode;
}

function Writes({ writes: { promoted, suppressed }, random, randomExpert, examples, badge, children }: WritesProps) {
  const links = usePageLinks();
  const largestChange = Math.max(1e-9, ...[...promoted, ...suppressed].map((token) => Math.abs(token.change)));
  return (
    <section aria-label="Writes">
      <div className="pane-h">
        <h2>
          <Term id="direct_logit_effect">Writes</Term>
        </h2>
        <span className="badge">{badge}</span>
        <span className="note">{examples}</span>
      </div>
      <Tokens title="Promotes" tokens={promoted} largestChange={largestChange} side="up" />
      <Tokens title="Suppresses" tokens={suppressed} largestChange={largestChange} side="down" />
      {random !== null && randomExpert !== null && (
        <p className="ablation-note">
          Largest rise {formatSigned(largestEffect({ promoted }), 2)}. Random expert{" "}
          <Link className="link" to={links.expert(randomExpert)}>
            {randomExpert}
          </Link>
          : {formatSigned(largestEffect(random), 2)}.
        </p>
      )}
      {children}
    </section>
  );
}

/** The stored mean over all activations. */
function StoredWrites({ run, ablation }: { readonly run: string; readonly ablation: Ablation }) {
  const random = useQuery(ablationQuery(run, ablation.random_expert)).data?.ablation ?? null;
  return (
    <Writes
      writes={ablation}
      random={random}
      randomExpert={ablation.random_expert}
      examples={`mean over ${formatCount(ablation.examples)} examples`}
      badge={ablation.exceeds_random ? "measured" : NO_MORE_THAN_RANDOM}
    >
      <p className="ablation-note">
        <Term id="input_dependence">Input dependence</Term> {formatPercent(ablation.input_dependence, 0)}&nbsp;%
      </p>
    </Writes>
  );
}

const NO_MORE_THAN_RANDOM = "no more than a random expert";

/** Computed now on the strongest examples; a button measures the expert on all activations. */
function WritesNow({ run, expert }: AblationEffectsProps) {
  const { data, error } = useQuery(writesQuery(run, expert));
  const measure = useMeasureAblation(run, expert);
  if (error !== null) return <ErrorState error={error} />;
  if (data === undefined) {
    return (
      <section>
        <LoadingState label="Computing what the expert writes" rows={8} />
      </section>
    );
  }
  const { writes, random, exceeds_random: exceeds } = data;
  if (writes.examples === 0) return null;
  return (
    <Writes
      writes={writes}
      random={random}
      randomExpert={random?.expert ?? null}
      examples={`its ${writes.examples} strongest examples`}
      badge={exceeds ? "direct only" : NO_MORE_THAN_RANDOM}
    >
      <p className="ablation-note">
        <Button size="small" disabled={measure.isPending} onClick={() => measure.mutate()}>
          {measure.isPending ? "Measuring, about 30 s" : "Measure this expert"}
        </Button>{" "}
        Ablates and amplifies it on examples of all strengths.
      </p>
      {measure.error !== null && <ErrorState error={measure.error} />}
    </Writes>
  );
}

interface RowProps {
  readonly name: string;
  readonly term: TermId;
  readonly children: ReactNode;
  readonly other?: string | undefined;
  readonly direction?: string | undefined;
}

function Row({ name, term, children, other = "", direction = "" }: RowProps) {
  return (
    <tr>
      <th scope="row">
        <Term id={term}>{name}</Term>
      </th>
      <td className="num own">{children}</td>
      <td className="num">{other}</td>
      <td className="num">{direction}</td>
    </tr>
  );
}

const percent = (value: number | null) => (value === null ? "–" : formatPercent(value, 1));
const loss = (value: number | null) => (value === null ? "–" : formatSigned(value, 4));

function EffectsTable({ ablation }: { readonly ablation: Ablation }) {
  const links = usePageLinks();
  return (
    <table className="ablation-effects">
      <thead>
        <tr>
          <th>
            <span className="sr">Measure</span>
          </th>
          <th className="num">Own</th>
          <th className="num">
            <Link to={links.expert(ablation.random_expert)} title="A random expert of the same density">
              Random<span className="sr"> expert {ablation.random_expert}</span>
            </Link>
          </th>
          <th className="num" title="A random direction of the same norm">
            Direction<span className="sr">, random</span>
          </th>
        </tr>
      </thead>
      <tbody>
        <Row name="Δ loss, ablated" term="loss_increase" other={loss(ablation.random_loss_increase)}>
          {loss(ablation.loss_increase)}
        </Row>
        <Row
          name="KL, amplified"
          term="kl_amplified"
          other={formatFixed(ablation.kl_random_expert, 4)}
          direction={formatFixed(ablation.kl_random_direction, 4)}
        >
          {formatFixed(ablation.kl_amplified, 4)}
        </Row>
        <Row name="Output share, %" term="output_share" other={percent(ablation.random_output_share)}>
          {formatPercent(ablation.output_share, 1)}
        </Row>
      </tbody>
    </table>
  );
}

function CausalImportance({ ablation }: { readonly ablation: Ablation }) {
  return (
    <section>
      <div className="pane-h">
        <h2>Causal importance</h2>
        <span className="note">
          <Term id="nats">nats</Term>, {formatCount(ablation.examples)} examples
        </span>
      </div>
      <EffectsTable ablation={ablation} />
      <p className="ablation-note">
        Baselines: a random expert of the same density, a random direction. Means without intervals: a loss change as
        small as the random expert’s is noise.
      </p>
    </section>
  );
}

interface AblationEffectsProps {
  readonly run: string;
  readonly expert: number;
}

export function AblationEffects({ run, expert }: AblationEffectsProps) {
  const { data, error } = useQuery(ablationQuery(run, expert));
  if (error !== null) return <ErrorState error={error} />;
  if (data === undefined) {
    return (
      <section>
        <LoadingState label="Loading ablation effects" rows={4} />
      </section>
    );
  }
  const { ablation } = data;
  if (ablation === null) return <WritesNow run={run} expert={expert} />;
  return (
    <>
      <StoredWrites run={run} ablation={ablation} />
      <CausalImportance ablation={ablation} />
    </>
  );
}

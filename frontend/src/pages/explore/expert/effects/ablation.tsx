/** The expert's promoted tokens and the measured effect of ablating or amplifying it, with baselines. */

import "./ablation.css";

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { ablationQuery } from "@/api/queries";
import type { Ablation as Ablation, TokenEffect } from "@/api/types";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { CopyButton } from "@/components/ui/copy-button";
import { ErrorState, LoadingState } from "@/components/ui/states";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

const MAX_TOKENS = 8;

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

function DirectLogitEffect({ influence }: { readonly influence: Ablation }) {
  const { promoted, suppressed } = influence;
  const largestChange = Math.max(1e-9, ...[...promoted, ...suppressed].map((token) => Math.abs(token.change)));
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Direct logit effect</h2>
        <span className="note">on the next token, mean over its examples</span>
      </div>
      <div className="ablation-tokens-pair">
        <Tokens title="Promotes" tokens={promoted} largestChange={largestChange} side="up" />
        <Tokens title="Suppresses" tokens={suppressed} largestChange={largestChange} side="down" />
      </div>
      <p className="ablation-note">
        <b>{formatPercent(influence.input_dependence, 0)} %</b> of its output lies outside its mean direction. A
        transcoder feature has a fixed direction, i.e. 0 %.
      </p>
    </section>
  );
}

interface RowProps {
  readonly name: string;
  readonly note: string;
  readonly children: ReactNode;
  readonly other?: string | undefined;
  readonly direction?: string | undefined;
}

function Row({ name, note, children, other = "", direction = "" }: RowProps) {
  return (
    <tr>
      <th scope="row">
        {name}
        <span className="note">{note}</span>
      </th>
      <td className="num own">{children}</td>
      <td className="num">{other}</td>
      <td className="num">{direction}</td>
    </tr>
  );
}

const percent = (value: number | null) => (value === null ? "–" : formatPercent(value, 1));
const loss = (value: number | null) => (value === null ? "–" : formatSigned(value, 4));

function CausalImportance({ influence }: { readonly influence: Ablation }) {
  const links = usePageLinks();
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Causal importance</h2>
        <span className="note">nats, mean over active tokens of {formatCount(influence.examples)} examples</span>
      </div>
      <table className="ablation-effects">
        <thead>
          <tr>
            <th>
              <span className="sr">Intervention</span>
            </th>
            <th className="num">This expert</th>
            <th className="num">
              <Link to={links.expert(influence.random_expert)} title="A random expert of the same density">
                Expert {influence.random_expert}
              </Link>
            </th>
            <th className="num" title="A random direction of the same norm">
              Random direction
            </th>
          </tr>
        </thead>
        <tbody>
          <Row name="Ablated" note="loss increase (ΔCE)" other={loss(influence.random_loss_increase)}>
            {loss(influence.loss_increase)}
          </Row>
          <Row
            name="Amplified"
            note="KL at +p99"
            other={formatFixed(influence.kl_random_expert, 4)}
            direction={formatFixed(influence.kl_random_direction, 4)}
          >
            {formatFixed(influence.kl_amplified, 4)}
          </Row>
          <Row
            name="Share of output"
            note="% of all active experts’ norms"
            other={percent(influence.random_output_share)}
          >
            {formatPercent(influence.output_share, 1)}
          </Row>
        </tbody>
      </table>
      <p className="ablation-note">
        Baselines: a random expert of the same density (amplified on this expert’s examples, otherwise measured on its
        own) and a random direction of the same norm.
      </p>
    </section>
  );
}

interface AblationEffectsProps {
  readonly run: string;
  readonly expert: number;
}

export function Influence({ run, expert }: AblationEffectsProps) {
  const { data, error, isPending } = useQuery(ablationQuery(run, expert));
  if (error !== null) return <ErrorState error={error} />;
  if (isPending) return <LoadingState label="Loading ablation effects" rows={4} />;
  if (data.ablation === null) {
    return (
      <p className="ablation-missing">
        The effects of this expert have not been measured yet. Run <code>{data.command}</code>{" "}
        <CopyButton size="small" variant="ghost" aria-label="Copy command" text={() => data.command} />
      </p>
    );
  }
  return (
    <div className="ablation">
      <DirectLogitEffect influence={data.ablation} />
      <CausalImportance influence={data.ablation} />
    </div>
  );
}

/** What the expert writes, and what changes when it is switched off or turned up, beside controls. */

import "./influence.css";

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { influenceQuery } from "@/api/queries";
import type { Influence as Measured, TokenEffect } from "@/api/types";
import { CopyButton } from "@/components/copy-button";
import { usePageLinks } from "@/components/links";
import { ErrorState, LoadingState } from "@/components/states";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatCount, formatFixed, formatPercent, formatSigned } from "@/lib/format";

const TOKENS_SHOWN = 8;

interface TokensProps {
  readonly title: string;
  readonly tokens: readonly TokenEffect[];
  readonly most: number;
  readonly side: "up" | "down";
}

function Tokens({ title, tokens, most, side }: TokensProps) {
  return (
    <table className={`influence-tokens ${side}`}>
      <thead>
        <tr>
          <th>{title}</th>
          <th className="num" colSpan={2}>
            Δ log p <span className="unit">nats</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {tokens.slice(0, TOKENS_SHOWN).map((token) => (
          <tr key={token.id}>
            <td className="what">
              <TokenChip text={token.text} />
            </td>
            <td className="b" aria-hidden="true">
              <i style={{ width: `${(100 * Math.abs(token.change)) / most}%` }} />
            </td>
            <td className="num">{formatSigned(token.change, 3)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Writes({ influence }: { readonly influence: Measured }) {
  const { promoted, suppressed } = influence;
  const most = Math.max(1e-9, ...[...promoted, ...suppressed].map((token) => Math.abs(token.change)));
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Writes</h2>
        <span className="note">direct effect on the next token, mean over its contexts</span>
      </div>
      <div className="influence-pair">
        <Tokens title="Promotes" tokens={promoted} most={most} side="up" />
        <Tokens title="Suppresses" tokens={suppressed} most={most} side="down" />
      </div>
      <p className="influence-words">
        <b>{formatPercent(influence.input_dependence, 0)} %</b> of what it writes lies outside its mean direction: 0
        would be a fixed direction, as a transcoder’s feature has.
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

function Matters({ influence }: { readonly influence: Measured }) {
  const links = usePageLinks();
  return (
    <section className="pane">
      <div className="pane-h">
        <h2>Matters</h2>
        <span className="note">nats, mean over its active tokens, from {formatCount(influence.contexts)} contexts</span>
      </div>
      <table className="influence-matters">
        <thead>
          <tr>
            <th>
              <span className="sr">What is done</span>
            </th>
            <th className="num">This</th>
            <th className="num">
              <Link to={links.expert(influence.other)} title="A random expert of the same usage">
                Expert {influence.other}
              </Link>
            </th>
            <th className="num" title="A random direction of the same length">
              Direction
            </th>
          </tr>
        </thead>
        <tbody>
          <Row name="Switched off" note="loss of the next token" other={loss(influence.other_added_loss)}>
            {loss(influence.added_loss)}
          </Row>
          <Row
            name="Turned up"
            note="by its 99th percentile, KL"
            other={formatFixed(influence.kl_other, 4)}
            direction={formatFixed(influence.kl_direction, 4)}
          >
            {formatFixed(influence.kl_up, 4)}
          </Row>
          <Row name="Share of output" note="%, of active norms" other={percent(influence.other_output_share)}>
            {formatPercent(influence.output_share, 1)}
          </Row>
        </tbody>
      </table>
      <p className="influence-words">
        Controls: a random expert of the same usage (turned up on this one’s contexts; the rest on its own), and a
        random direction as long as what turning up adds.
      </p>
    </section>
  );
}

interface InfluenceProps {
  readonly run: string;
  readonly expert: number;
}

export function Influence({ run, expert }: InfluenceProps) {
  const { data, error, isPending } = useQuery(influenceQuery(run, expert));
  if (error !== null) return <ErrorState error={error} />;
  if (isPending) return <LoadingState label="Loading what it does" rows={4} />;
  if (data.influence === null) {
    return (
      <p className="influence-missing">
        What it writes and how much it matters has not been measured: <code>{data.command}</code>{" "}
        <CopyButton size="small" variant="ghost" aria-label="Copy the command" text={() => data.command} />
      </p>
    );
  }
  return (
    <div className="influence">
      <Writes influence={data.influence} />
      <Matters influence={data.influence} />
    </div>
  );
}

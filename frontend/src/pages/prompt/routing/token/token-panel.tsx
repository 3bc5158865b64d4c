/** Details of one token: its active experts and the next-token probabilities. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { directEffectsQuery, type Prompt } from "@/api/queries";
import type {
  ExpertEffect,
  PredictedToken,
  RoutedExpert,
  RoutedExpertInfo,
  RoutingResponse,
  RunSummary,
} from "@/api/types";
import { ActivationCell, ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { methodName } from "@/components/runs/run-labels";
import { Term } from "@/components/terms/term";
import { Promoted, TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { PaneHead } from "@/components/ui/pane-head";
import { formatFixed, formatPercent, formatShare, formatSigned } from "@/lib/text/format";
import { type Column, mostSpecific, type Predicted, rarityOf } from "@/pages/prompt/routing/heat-map/heat-rows";
import type { RoutingLock } from "@/pages/prompt/routing/routing-params";

const MAX_TOKENS = 8;
/** Pixels of a row. */
const NEXT_ROW = 23;

interface NextTokenProps {
  /** undefined while loading. */
  readonly token: PredictedToken | undefined;
  readonly method: string;
  readonly count?: number;
}

const roundedPercent = (probability: number) => Number((100 * probability).toFixed(1));

/** The difference between the two numbers as shown. */
function Change({ original, replaced }: { readonly original: number; readonly replaced: number }) {
  const text = formatSigned(roundedPercent(replaced) - roundedPercent(original), 1);
  const side = text.startsWith("+") ? "up" : text.startsWith("−") ? "down" : "";
  return <td className={`num change ${side}`}>{text}</td>;
}

/** Next-token probabilities after a token, with the original MLP and with the layer. */
export function NextToken({ token, method, count = MAX_TOKENS }: NextTokenProps) {
  const shown = token?.predictions.slice(0, count) ?? [];
  const largestProbability = shown.reduce((largest, next) => Math.max(largest, next.original, next.replaced), 1e-9);
  const bar = (probability: number) => ({ width: `${(100 * probability) / largestProbability}%` });
  return (
    <section className="next-token" aria-busy={token === undefined}>
      <PaneHead title="Next token" />
      <table>
        <thead>
          <tr>
            <th>
              <span className="sr">Token</span>
            </th>
            <th colSpan={2} className="num">
              Original <span className="unit">%</span>
            </th>
            <th colSpan={2} className="num">
              {method} <span className="unit">%</span>
            </th>
            <th className="num">Change</th>
          </tr>
        </thead>
        <tbody>
          {token === undefined && (
            <tr>
              <td colSpan={6} style={{ height: NEXT_ROW * count }} />
            </tr>
          )}
          {shown.map((next) => (
            <tr key={next.id}>
              <td className="what">
                <TokenChip text={next.text} />
              </td>
              <td className="b">
                <i className="bar-mark" style={bar(next.original)} />
              </td>
              <td className="num">{formatShare(next.original, 1)}</td>
              <td className="b x">
                <i className="bar-mark" style={bar(next.replaced)} />
              </td>
              <td className="num">{formatShare(next.replaced, 1)}</td>
              <Change {...next} />
            </tr>
          ))}
        </tbody>
      </table>
      <p className="dim">
        <Term id="kl">KL</Term> from the original {token === undefined ? "…" : formatFixed(token.kl, 3)} nats,{" "}
        {token === undefined ? "…" : formatFixed(token.zeroed_kl, 3)} zero‑ablated.
      </p>
    </section>
  );
}

const MAX_EXPERTS = 5;
const MAX_PROMOTED = 2;

interface PanelProps {
  readonly run: RunSummary;
  readonly response: RoutingResponse;
  /** The routed text. */
  readonly text: Prompt;
  readonly column: Column;
  /** End of the heat map's colour scale. */
  readonly end: number;
  readonly predicted: Predicted;
  /** Null while the column is only previewed. */
  readonly lock: RoutingLock | null;
  /** Locks the token, or releases it. */
  readonly onToggle: () => void;
}

interface ExpertOfTokenProps {
  readonly run: string;
  readonly routed: RoutedExpert;
  readonly info: RoutedExpertInfo | undefined;
  /** Only of a locked token, and null while it loads. */
  readonly effect?: ExpertEffect | null | undefined;
  /** End of the colour scale. */
  readonly end: number;
  readonly isLocked?: boolean;
}

/** One active expert of a token: label, score, activation, share, number, tray, and the tokens that it promotes here. */
function ExpertOfToken({ run, routed, info, effect, end, isLocked = false }: ExpertOfTokenProps) {
  const { expert, activation, share } = routed;
  return (
    <li className={isLocked ? "rowlk" : undefined}>
      <Link className="lab cut" to={pageLinks(run).expert(expert)}>
        <ExpertLabel
          label={info?.label ?? null}
          automatic={info?.automatic}
          topTokens={info?.top_tokens ?? []}
          expert={expert}
        />
      </Link>
      <b className="num">{formatFixed(activation * rarityOf(info), 1)}</b>
      <ActivationCell value={activation} largest={end} />
      <span className="num">{formatPercent(share, 1)} %</span>
      <span className="mono">{expert}</span>
      <PlusButton expert={expert} run={run} />
      {effect !== undefined && (
        <div className="chips">
          → <Promoted tokens={effect?.promoted.slice(0, MAX_PROMOTED) ?? []} />
        </div>
      )}
    </li>
  );
}

function TokenExperts({ run: { name: run }, response: { experts }, text, column, end, lock }: PanelProps) {
  const { data } = useQuery(directEffectsQuery(run, text, lock === null ? null : column.position));
  const effects = new Map(data?.experts.map((effect) => [effect.expert, effect]));
  const [isExpanded, setExpanded] = useState(false);
  const active = mostSpecific(column.token, experts);
  const lockedIndex = active.findIndex(({ expert }) => expert === lock?.expert);
  const shown = isExpanded ? active : active.slice(0, Math.max(MAX_EXPERTS, lockedIndex + 1));
  return (
    <>
      {lock !== null && (
        <p className="dim">
          → <Term id="direct_logit_effect">promotes</Term> here, nats, not compared with random experts
        </p>
      )}
      <p className="token-heads dim">
        <b>
          <Term id="specificity">Score</Term> ↓
        </b>
        <Term id="activation">Activation</Term>
        <Term id="output_norm">Share</Term>
        <span className="num">Expert</span>
      </p>
      <ul className="token-experts">
        {shown.map((routed) => (
          <ExpertOfToken
            key={routed.expert}
            {...{ run, routed, end }}
            info={experts[routed.expert]}
            effect={lock === null ? undefined : (effects.get(routed.expert) ?? null)}
            isLocked={routed.expert === lock?.expert}
          />
        ))}
      </ul>
      <div className="row more">
        {active.length > MAX_EXPERTS && (
          <button type="button" className="link" aria-expanded={isExpanded} onClick={() => setExpanded(!isExpanded)}>
            {isExpanded ? "Fewer experts" : `${active.length - shown.length} more experts`}
          </button>
        )}
        <span className="grow" />
        <span className="dim">
          {active.length === 0 ? "No active experts on this token" : `all ${active.length} sum to 100 %`}
        </span>
      </div>
    </>
  );
}

export function TokenPanel(props: PanelProps) {
  const { run, column, predicted, lock, onToggle } = props;
  return (
    <aside className="token-panel" aria-label="Token details" data-locked={lock !== null}>
      <section>
        <div className="row pane-h">
          <h2>
            {lock === null ? "Token" : "Locked"}: <TokenChip text={column.token.text} />
          </h2>
          <span className="note">position {column.position}</span>
          <span className="grow" />
          <Button
            size="small"
            variant={lock === null ? "plain" : "chosen"}
            aria-pressed={lock !== null}
            onClick={onToggle}
          >
            Lock
          </Button>
        </div>
        <TokenExperts key={column.position} {...props} />
      </section>
      <NextToken token={predicted?.[column.position]} method={methodName(run.method)} />
    </aside>
  );
}

/** Details of one token: its active experts and the next-token probabilities. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";

import { directEffectsQuery, type Prompt } from "@/api/queries";
import type { ExpertEffect, PredictedToken, RoutedExpert, RoutedExpertInfo, RoutingResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { ActivationCell } from "@/components/experts/activation-cell";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { formatFixed, formatPercent, formatProbability, formatSigned } from "@/lib/text/format";
import { type Column, mostSpecific, type Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

/** Head of a table of active experts: columns of the caller, then activation, share and tray. */
export function ExpertsHead({ children }: { readonly children: ReactNode }) {
  return (
    <thead>
      <tr>
        {children}
        <th className="num">
          <Term id="activation">Activation</Term>
        </th>
        <th className="num">
          <Term id="output_norm">Share</Term> <span className="unit">%</span>
        </th>
        <th>
          <span className="sr">Tray</span>
        </th>
      </tr>
    </thead>
  );
}

const MAX_TOKENS = 8;

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
      <div className="pane-h">
        <h2>Next token</h2>
        <span className="grow" />
        <span className="note">
          <Term id="kl">KL</Term> {token === undefined ? "…" : formatFixed(token.kl, 3)} nats, MLP removed{" "}
          {token === undefined ? "…" : formatFixed(token.zeroed_kl, 3)}
        </span>
      </div>
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
          {shown.map((next) => (
            <tr key={next.id}>
              <td className="what">
                <TokenChip text={next.text} />
              </td>
              <td className="b">
                <i style={bar(next.original)} />
              </td>
              <td className="num">{formatProbability(next.original)}</td>
              <td className="b x">
                <i style={bar(next.replaced)} />
              </td>
              <td className="num">{formatProbability(next.replaced)}</td>
              <Change {...next} />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const MAX_EXPERTS = 7;
const MAX_PROMOTED = 2;

interface PanelProps {
  readonly run: string;
  /** The routed text. */
  readonly text: Prompt;
  readonly column: Column;
  readonly experts: RoutingResponse["experts"];
  /** End of the heat map's colour scale. */
  readonly end: number;
  readonly predicted: Predicted;
  /** Name of the method that replaces the MLP. */
  readonly method: string;
  readonly isLocked: boolean;
  readonly lockedExpert: number | null;
  readonly onRelease: () => void;
}

interface RowProps {
  readonly run: string;
  readonly routed: RoutedExpert;
  readonly info: RoutedExpertInfo | undefined;
  /** Only loaded for a locked token. */
  readonly effect?: ExpertEffect | undefined;
  /** End of the colour scale. */
  readonly end: number;
  readonly isLocked?: boolean;
}

/** Tokens promoted by an expert's contribution alone; until they are loaded, its top tokens. */
function ExpertTokens({ info, effect }: Pick<RowProps, "info" | "effect">) {
  if (effect === undefined) return (info?.top_tokens ?? []).map((text, i) => <TokenChip key={i} text={text} />);
  return effect.promoted.slice(0, MAX_PROMOTED).map((token) => (
    <span key={token.id} className="promoted">
      <TokenChip text={token.text} /> <span className="num up">{formatSigned(token.change, 2)}</span>
    </span>
  ));
}

const hasLabel = (info: RoutedExpertInfo | undefined) =>
  info !== undefined && (info.label !== null || shownAutomatic(info.automatic) !== null);

/** One active expert of a token: id and label, its tokens, activation, share and tray. */
export function ExpertOfToken({ run, routed, info, effect, end, isLocked = false }: RowProps) {
  return (
    <tr className={isLocked ? "rowlk" : undefined}>
      <td className="a">
        <div>
          <Link to={pageLinks(run).expert(routed.expert)}>
            <span className="mono id">{routed.expert}</span>{" "}
            {hasLabel(info) && (
              <span className="lab">
                <ExpertLabel label={info?.label ?? null} automatic={info?.automatic} />
              </span>
            )}
          </Link>
          <div className="chips">
            <ExpertTokens info={info} effect={effect} />
          </div>
        </div>
      </td>
      <td className="num">
        <ActivationCell value={routed.activation} largest={end} />
      </td>
      <td className="num">{formatPercent(routed.share, 1)}</td>
      <td>
        <PlusButton expert={routed.expert} run={run} />
      </td>
    </tr>
  );
}

/** What the table names: tokens that each expert promotes here, or until they are loaded, those it fires on. */
function Named({ arePromoted }: { readonly arePromoted: boolean }) {
  if (!arePromoted) return <Term id="top_tokens">top tokens</Term>;
  return (
    <>
      <Term id="direct_logit_effect">promotes</Term>
      <span className="unit">, Δ nats</span>
    </>
  );
}

type TokenExpertsProps = Omit<PanelProps, "predicted" | "method" | "onRelease">;

function TokenExperts({ run, text, column, experts, end, isLocked, lockedExpert }: TokenExpertsProps) {
  const { data } = useQuery(directEffectsQuery(run, text, isLocked ? column.position : null));
  const effects = new Map(data?.experts.map((effect) => [effect.expert, effect]));
  const [isExpanded, setExpanded] = useState(false);
  const active = mostSpecific(column.token, experts);
  const lockedIndex = active.findIndex(({ expert }) => expert === lockedExpert);
  const shown = isExpanded ? active : active.slice(0, Math.max(MAX_EXPERTS, lockedIndex + 1));
  return (
    <>
      <table className="token-experts">
        <ExpertsHead>
          <th>
            Expert, <Named arePromoted={data !== undefined} />
          </th>
        </ExpertsHead>
        <tbody>
          {shown.map((routed) => (
            <ExpertOfToken
              key={routed.expert}
              run={run}
              routed={routed}
              info={experts[routed.expert]}
              effect={effects.get(routed.expert)}
              end={end}
              isLocked={routed.expert === lockedExpert}
            />
          ))}
        </tbody>
      </table>
      <div className="more">
        {active.length > MAX_EXPERTS && (
          <button type="button" className="link" aria-expanded={isExpanded} onClick={() => setExpanded(!isExpanded)}>
            {isExpanded ? "Fewer experts" : `${active.length - shown.length} more experts`}
          </button>
        )}
        <span className="grow" />
        <span className="dim">
          {active.length === 0
            ? "No active experts on this token"
            : `shares of all ${active.length} experts sum to 100 %`}
        </span>
      </div>
    </>
  );
}

export function TokenPanel(props: PanelProps) {
  const { column, predicted, method, isLocked, onRelease } = props;
  return (
    <aside className="token-panel" aria-label="Token details" data-locked={isLocked}>
      <section>
        <div className="pane-h">
          <h2>
            {isLocked ? "Locked" : "Token"}: <TokenChip text={column.token.text} />
          </h2>
          <span className="note">position {column.position}</span>
          <span className="grow" />
          {isLocked ? (
            <Button size="small" variant="ghost" shortcut="release" onClick={onRelease}>
              Release
            </Button>
          ) : (
            <span className="note">click to lock</span>
          )}
        </div>
        <TokenExperts key={column.position} {...props} />
      </section>
      <NextToken token={predicted?.[column.position]} method={method} />
    </aside>
  );
}

/** Details of one token: its active experts and the next-token probabilities. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { directEffectsQuery, type Prompt } from "@/api/queries";
import type { ExpertEffect, RoutedExpert, RoutedExpertInfo, RoutingResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button } from "@/components/ui/button";
import { formatPercent, formatSigned } from "@/lib/text/format";
import type { Column, Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

import { ExpertsHead } from "./experts-head";
import { NextToken } from "./next-token";

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
  readonly routed: RoutedExpert;
  readonly info: RoutedExpertInfo | undefined;
  /** Only loaded for a locked token. */
  readonly effect: ExpertEffect | undefined;
  readonly end: number;
  readonly isLocked: boolean;
}

/** Tokens promoted by an expert's contribution alone; until they are loaded, its top activating tokens. */
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

function ExpertOfToken({ routed, info, effect, end, isLocked }: RowProps) {
  const links = usePageLinks();
  return (
    <tr className={isLocked ? "rowlk" : undefined}>
      <td className="a">
        <Link to={links.expert(routed.expert)}>
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
      </td>
      <td className="num">
        <CoefficientCell value={routed.coefficient} largest={end} />
      </td>
      <td className="num">{formatPercent(routed.share, 1)}</td>
      <td>
        <PlusButton expert={routed.expert} />
      </td>
    </tr>
  );
}

/** What the table names: tokens that each expert promotes here, or until they are loaded, those it fires on. */
function Named({ arePromoted }: { readonly arePromoted: boolean }) {
  if (!arePromoted) return <Term id="top_tokens">top activating tokens</Term>;
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
  const active = column.token.experts;
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
    <aside className="token-panel" aria-label="Token details">
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

/** One token in full: the experts active on it, and what the language model expects next. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";

import { effectsQuery, type Prompt } from "@/api/queries";
import type { ExpertEffect, RoutedExpert, RoutedExpertInfo, RoutingResponse } from "@/api/types";
import { ExpertLabel } from "@/components/expert-ref";
import { Button } from "@/components/button";
import { useCurrentRun } from "@/components/current-run";
import { CoefficientCell } from "@/components/coefficient-bar";
import { pageLinks, usePageLinks } from "@/components/links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatPercent, formatSigned } from "@/lib/format";

import type { Column, Predicted } from "./heat-rows";
import { NextToken } from "./next-token";

const SHOWN = 7;
const PROMOTED = 2;

interface PanelProps {
  readonly run: string;
  /** The text that is routed. */
  readonly text: Prompt;
  readonly column: Column;
  readonly experts: RoutingResponse["experts"];
  /** End of the map's colour scale. */
  readonly end: number;
  readonly predicted: Predicted;
  /** Name of the method that stands in for the MLP. */
  readonly method: string;
  readonly isLocked: boolean;
  readonly lockedExpert: number | null;
  readonly onRelease: () => void;
  /** The same token in other layers. */
  readonly others: ReactNode;
}

interface RowProps {
  readonly ofRun: string | undefined;
  readonly routed: RoutedExpert;
  readonly info: RoutedExpertInfo | undefined;
  /** Known for a locked token. */
  readonly effect: ExpertEffect | undefined;
  readonly end: number;
  readonly isLocked: boolean;
}

/** The tokens that an expert's contribution alone makes more likely next; those it fires on until that is known. */
function ExpertTokens({ info, effect }: Pick<RowProps, "info" | "effect">) {
  if (effect === undefined) return (info?.top_tokens ?? []).map((text, i) => <TokenChip key={i} text={text} />);
  return effect.promoted.slice(0, PROMOTED).map((token) => (
    <span key={token.id} className="promoted">
      <TokenChip text={token.text} /> <span className="num up">{formatSigned(token.change, 2)}</span>
    </span>
  ));
}

/** Of a run that writes several layers: the expert's share in each of them. */
function InLayers({
  run,
  shares,
}: {
  readonly run: string | undefined;
  readonly shares: readonly number[] | undefined;
}) {
  const { name, runs } = useCurrentRun();
  const first = runs.find((one) => one.name === (run ?? name))?.layer;
  if (first === undefined || shares === undefined || shares.length === 0) return null;
  return (
    <div className="in-layers dim" title="Share in each layer that is written">
      {shares.map((share, place) => `layer ${first + place}: ${formatPercent(share, 0)} %`).join(", ")}
    </div>
  );
}

function ExpertOfToken({ ofRun, routed, info, effect, end, isLocked }: RowProps) {
  const current = usePageLinks();
  const links = ofRun === undefined ? current : pageLinks(ofRun);
  return (
    <tr className={isLocked ? "rowlk" : undefined}>
      <td className="a">
        <Link to={links.expert(routed.expert)}>
          <span className="mono id">{routed.expert}</span>{" "}
          <span className="lab">
            <ExpertLabel label={info?.label ?? null} automatic={info?.automatic} />
          </span>
        </Link>
        <div className="chips">
          <ExpertTokens info={info} effect={effect} />
        </div>
        <InLayers run={ofRun} shares={routed.shares} />
      </td>
      <td className="num">
        <CoefficientCell value={routed.coefficient} largest={end} />
      </td>
      <td className="num">{formatPercent(routed.share, 1)}</td>
      <td>
        <PlusButton expert={routed.expert} run={ofRun} />
      </td>
    </tr>
  );
}

interface TokenExpertsProps extends Omit<PanelProps, "predicted" | "method" | "onRelease" | "others"> {
  /** The run, where it is not the one that the page is about. */
  readonly ofRun?: string;
}

export function TokenExperts({ run, ofRun, text, column, experts, end, isLocked, lockedExpert }: TokenExpertsProps) {
  const { data } = useQuery(effectsQuery(run, text, isLocked ? column.position : null));
  const effects = new Map(data?.experts.map((effect) => [effect.expert, effect]));
  const [all, setAll] = useState(false);
  const active = column.token.experts;
  const place = active.findIndex(({ expert }) => expert === lockedExpert);
  const shown = all ? active : active.slice(0, Math.max(SHOWN, place + 1));
  return (
    <>
      <table className="token-experts">
        <thead>
          <tr>
            <th>
              {data === undefined ? "Expert, tokens it fires on" : "Expert, promotes next"}
              {data !== undefined && <span className="unit"> Δ nats</span>}
            </th>
            <th className="num">Coeff.</th>
            <th className="num">
              Share <span className="unit">%</span>
            </th>
            <th>
              <span className="sr">Tray</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((routed) => (
            <ExpertOfToken
              key={routed.expert}
              ofRun={ofRun}
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
        {active.length > SHOWN && (
          <button type="button" className="link" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Fewer experts" : `${active.length - shown.length} more experts`}
          </button>
        )}
        <span className="grow" />
        <span className="dim">
          {active.length === 0 ? "No expert is active on this token" : `shares of all ${active.length} sum to 100`}
        </span>
      </div>
    </>
  );
}

export function TokenPanel(props: PanelProps) {
  const { column, predicted, method, isLocked, others, onRelease } = props;
  return (
    <aside className="token-panel" aria-label="The token in full">
      <section>
        <div className="pane-h">
          <h2>
            {isLocked ? "Locked" : "Token"}: <TokenChip text={column.token.text} />
          </h2>
          <span className="note">position {column.position}</span>
          <span className="grow" />
          {isLocked ? (
            <Button size="small" variant="ghost" icon="close" shortcut="release" onClick={onRelease}>
              Release
            </Button>
          ) : (
            <span className="note">click one to lock</span>
          )}
        </div>
        <TokenExperts key={column.position} {...props} />
      </section>
      <NextToken token={predicted?.[column.position]} method={method} />
      {others}
    </aside>
  );
}

/** One token in full: the experts active on it, and what the language model expects next. */

import { useState } from "react";
import { Link } from "react-router";

import type { RoutedExpert, RoutedExpertInfo, RoutingResponse } from "@/api/types";
import { Button } from "@/components/button";
import { CoefficientCell } from "@/components/coefficient-bar";
import { usePageLinks } from "@/components/links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatPercent } from "@/lib/format";

import type { Column } from "./heat-rows";
import { NextToken } from "./next-token";

const SHOWN = 7;

interface PanelProps {
  readonly column: Column;
  readonly experts: RoutingResponse["experts"];
  /** End of the map's colour scale. */
  readonly end: number;
  /** Name of the method that stands in for the MLP. */
  readonly method: string;
  readonly isLocked: boolean;
  readonly lockedExpert: number | null;
  readonly onRelease: () => void;
}

interface RowProps {
  readonly routed: RoutedExpert;
  readonly info: RoutedExpertInfo | undefined;
  readonly end: number;
  readonly isLocked: boolean;
}

function ExpertOfToken({ routed, info, end, isLocked }: RowProps) {
  const links = usePageLinks();
  const tokens = info?.top_tokens ?? [];
  return (
    <tr className={isLocked ? "rowlk" : undefined}>
      <td className="a">
        <Link to={links.expert(routed.expert)}>
          <span className="mono id">{routed.expert}</span>{" "}
          <span className="lab">{info?.label ?? <span className="dim">no label yet</span>}</span>
        </Link>
        <div className="chips">
          {tokens.map((text, i) => (
            <TokenChip key={i} text={text} />
          ))}
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

function Experts({ column, experts, end, lockedExpert }: PanelProps) {
  const [all, setAll] = useState(false);
  const active = column.token.experts;
  const place = active.findIndex(({ expert }) => expert === lockedExpert);
  const shown = all ? active : active.slice(0, Math.max(SHOWN, place + 1));
  return (
    <>
      <table className="token-experts">
        <thead>
          <tr>
            <th>Expert, tokens it fires on</th>
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
              routed={routed}
              info={experts[routed.expert]}
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
  const { column, method, isLocked, onRelease } = props;
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
        <Experts key={column.position} {...props} />
      </section>
      <NextToken token={column.token} method={method} />
    </aside>
  );
}

/** The strongest experts on one token of the prompt. */

import { Link } from "react-router";

import type { ExpertRow, RoutedExpert, RoutedToken, RoutingResponse } from "@/api/types";
import { CoefficientBar } from "@/components/coefficient-bar";
import { ExpertLabel } from "@/components/expert-ref";
import { usePageLinks } from "@/components/links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatFixed } from "@/lib/format";

const SHOWN = 5;

interface TokenExpertsProps {
  readonly token: RoutedToken;
  readonly routing: RoutingResponse;
  readonly row: ExpertRow;
}

interface RoutedRowProps extends Omit<TokenExpertsProps, "token"> {
  readonly routed: RoutedExpert;
  readonly strongest: number;
}

function RoutedRow({ routed, strongest, routing, row }: RoutedRowProps) {
  const links = usePageLinks();
  const info = routing.experts[String(routed.expert)];
  return (
    <tr className={routed.expert === row.expert ? "me" : ""}>
      <td className="id mono">{routed.expert}</td>
      <td className="lab">
        <Link to={links.expert(routed.expert)}>
          <ExpertLabel label={info?.label ?? null} automatic={info?.automatic} topTokens={info?.top_tokens ?? []} />
          {(info?.label ?? null) === null && <span className="sr">Expert {routed.expert}</span>}
        </Link>
      </td>
      <td className="br">
        <CoefficientBar value={routed.coefficient} largest={strongest} scaleEnd={row.largest} />
      </td>
      <td className="num">{formatFixed(routed.coefficient)}</td>
      <td>
        <PlusButton expert={routed.expert} />
      </td>
    </tr>
  );
}

export function TokenExperts({ token, routing, row }: TokenExpertsProps) {
  const shown = token.experts.slice(0, SHOWN);
  return (
    <div className="token-experts">
      <div className="pane-h">
        <h2>
          Experts on <TokenChip text={token.text} />
        </h2>
        <span className="grow" />
        <span className="note">
          {shown.length} of {token.experts.length}
        </span>
      </div>
      <table className="mini">
        <tbody>
          {shown.map((routed) => (
            <RoutedRow
              key={routed.expert}
              routed={routed}
              strongest={shown[0]?.coefficient ?? 1}
              routing={routing}
              row={row}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The strongest experts on one token of the prompt. */

import { Link } from "react-router";

import type { ExpertRow, RoutedExpert, RoutedToken, RoutingResponse } from "@/api/types";
import { CoefficientBar } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatFixed } from "@/lib/text/format";

const MAX_EXPERTS = 5;

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
        <CoefficientBar value={routed.coefficient} largest={strongest} scaleEnd={row.max_activation} />
      </td>
      <td className="num">{formatFixed(routed.coefficient)}</td>
      <td>
        <PlusButton expert={routed.expert} />
      </td>
    </tr>
  );
}

export function TokenExperts({ token, routing, row }: TokenExpertsProps) {
  const topExperts = token.experts.slice(0, MAX_EXPERTS);
  return (
    <div className="token-experts">
      <div className="pane-h">
        <h2>
          Experts on <TokenChip text={token.text} />
        </h2>
        <span className="grow" />
        <span className="note">
          {topExperts.length} of {token.experts.length}
        </span>
      </div>
      <table className="mini">
        <tbody>
          {topExperts.map((routed) => (
            <RoutedRow
              key={routed.expert}
              routed={routed}
              strongest={topExperts[0]?.coefficient ?? 1}
              routing={routing}
              row={row}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

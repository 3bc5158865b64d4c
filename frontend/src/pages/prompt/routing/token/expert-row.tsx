/** One active expert of a token: id and label, activation, share and tray. */

import { Link } from "react-router";

import type { RoutedExpert, RoutedExpertInfo } from "@/api/types";
import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { PlusButton } from "@/components/tray/plus-button";
import { formatPercent } from "@/lib/text/format";

interface ExpertRowProps {
  readonly run: string;
  readonly routed: RoutedExpert;
  readonly info: RoutedExpertInfo;
  /** End of the colour scale. */
  readonly end: number;
  /** Decimals of the share. */
  readonly digits?: number;
}

export function ExpertRow({ run, routed, info, end, digits = 0 }: ExpertRowProps) {
  return (
    <tr>
      <td className="a">
        <Link to={pageLinks(run).expert(routed.expert)}>
          <span className="mono id">{routed.expert}</span>{" "}
          <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
        </Link>
      </td>
      <td className="num">
        <CoefficientCell value={routed.coefficient} largest={end} />
      </td>
      <td className="num">{formatPercent(routed.share, digits)}</td>
      <td>
        <PlusButton expert={routed.expert} run={run} />
      </td>
    </tr>
  );
}

/** The routing as a table: the active experts of each token, the strongest first. */

import "@/pages/prompt/routing/token/path.css";

import type { RoutedToken, RoutingResponse } from "@/api/types";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatCount, formatFixed } from "@/lib/text/format";
import type { CellPosition } from "@/pages/prompt/routing/heat-map/heat-events";
import type { Column, HeatRow, Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import type { RoutingLock } from "@/pages/prompt/routing/routing-params";
import { ExpertRow } from "@/pages/prompt/routing/token/expert-row";
import { ExpertsHead } from "@/pages/prompt/routing/token/experts-head";

/** Longer tables are slow to render. */
const MAX_TOKENS = 20;

interface PlainTableProps {
  readonly response: RoutingResponse;
  readonly columns: readonly Column[];
  /** The experts to list. */
  readonly rows: readonly HeatRow[];
  readonly end: number;
  readonly predicted: Predicted;
  readonly lock: RoutingLock | null;
  readonly onLock: (cell: CellPosition) => void;
}

interface TokenProps extends Pick<PlainTableProps, "end" | "predicted" | "lock" | "onLock"> {
  readonly run: string;
  readonly column: Column;
  readonly infos: ReadonlyMap<number, HeatRow["info"]>;
}

function countShown(shown: number, { experts }: RoutedToken): string {
  const all = `${experts.length} active ${experts.length === 1 ? "expert" : "experts"}`;
  return shown < experts.length ? `${shown} of ${all}` : all;
}

function ExpertsOfToken({ run, column, infos, end, predicted, lock, onLock }: TokenProps) {
  const { position, token } = column;
  const kl = predicted?.[position]?.kl;
  const shown = token.experts.flatMap((routed) => {
    const info = infos.get(routed.expert);
    return info === undefined ? [] : [{ routed, info }];
  });
  return (
    <tbody>
      <tr>
        <th scope="rowgroup" colSpan={4} className="layer">
          <button
            type="button"
            aria-pressed={position === lock?.position}
            onClick={() => onLock({ position, expert: null })}
          >
            <TokenChip text={token.text} />
          </button>{" "}
          position {position}, {countShown(shown.length, token)}, <Term id="kl">KL</Term>{" "}
          {kl === undefined ? "…" : formatFixed(kl, 3)} nats
        </th>
      </tr>
      {shown.map(({ routed, info }) => (
        <ExpertRow key={routed.expert} run={run} routed={routed} info={info} end={end} digits={1} />
      ))}
    </tbody>
  );
}

export function PlainTable({ response, columns, rows, ...shared }: PlainTableProps) {
  const infos = new Map(rows.map(({ expert, info }) => [expert, info]));
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table heat-list" tabIndex={0} role="region" aria-label="Routing as table">
      <table className="path">
        <ExpertsHead>
          <th>Expert</th>
        </ExpertsHead>
        {columns.slice(0, MAX_TOKENS).map((column) => (
          <ExpertsOfToken key={column.position} run={response.run} column={column} infos={infos} {...shared} />
        ))}
      </table>
      {columns.length > MAX_TOKENS && (
        <p className="dim">
          First {MAX_TOKENS} of {formatCount(columns.length)} tokens. The CSV file has all of them.
        </p>
      )}
    </div>
  );
}

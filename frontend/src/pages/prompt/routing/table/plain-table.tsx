/** The heat map as a list, for screen readers and copying: one row per token and active expert. */

import type { RoutingResponse } from "@/api/types";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatCount } from "@/lib/text/format";
import type { Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";

import { routingTable } from "./routing-export";

const MAX_ROWS = 400;
const TOKEN_COLUMN = 1;
const TEXT_COLUMNS = new Set([TOKEN_COLUMN, 6]);

interface PlainTableProps {
  readonly response: RoutingResponse;
  readonly predicted: Predicted;
  readonly withStart: boolean;
}

export function PlainTable({ response, predicted, withStart }: PlainTableProps) {
  const { columns, rows } = routingTable(response, predicted, withStart);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table heat-list" tabIndex={0} role="region" aria-label="Routing as table">
      <table className="grid plain">
        <thead>
          <tr>
            {columns.map((column, i) => (
              <th key={column} className={TEXT_COLUMNS.has(i) ? undefined : "num"}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MAX_ROWS).map((row, i) => (
            <tr key={i}>
              {row.map((value, column) => (
                <td key={column} className={TEXT_COLUMNS.has(column) ? undefined : "num"}>
                  {column === TOKEN_COLUMN ? <TokenChip text={value} /> : value}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MAX_ROWS && (
        <p className="dim">
          First {MAX_ROWS} of {formatCount(rows.length)} rows; download for all rows.
        </p>
      )}
    </div>
  );
}

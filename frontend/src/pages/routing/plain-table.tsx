/** The map as a list, for reading by ear and for copying: one row for every token and expert active on it. */

import type { RoutingResponse } from "@/api/types";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatCount } from "@/lib/format";

import type { Predicted } from "./heat-rows";
import { routingTable } from "./routing-export";

const ROWS = 400;
const TOKEN_COLUMN = 1;
const WORDS = new Set([TOKEN_COLUMN, 4]);

interface PlainTableProps {
  readonly response: RoutingResponse;
  readonly predicted: Predicted;
  readonly withStart: boolean;
}

export function PlainTable({ response, predicted, withStart }: PlainTableProps) {
  const { columns, rows } = routingTable(response, predicted, withStart);
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a box that scrolls must be reachable by key
    <div className="figure-table heat-list" tabIndex={0} role="region" aria-label="Routing as a table">
      <table className="grid plain">
        <thead>
          <tr>
            {columns.map((column, i) => (
              <th key={column} className={WORDS.has(i) ? undefined : "num"}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, ROWS).map((row, i) => (
            <tr key={i}>
              {row.map((value, column) => (
                <td key={column} className={WORDS.has(column) ? undefined : "num"}>
                  {column === TOKEN_COLUMN ? <TokenChip text={value} /> : value}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS && (
        <p className="dim">
          The first {ROWS} of {formatCount(rows.length)} rows; the download has all.
        </p>
      )}
    </div>
  );
}

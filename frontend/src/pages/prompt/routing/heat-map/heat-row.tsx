/** One expert of the heat map. */

import { memo } from "react";
import { Link } from "react-router";

import { ExpertLabel } from "@/components/experts/expert-link";
import { usePageLinks } from "@/components/runs/page-links";
import { PlusButton } from "@/components/tray/plus-button";
import { sequentialStep } from "@/lib/scales/colour-scale";
import { formatFixed, formatPercent } from "@/lib/text/format";

import type { ColumnWindow } from "./columns";
import { cellDigits, type Column, type HeatRow, type Ranking } from "./heat-rows";

interface HeatRowProps {
  readonly row: HeatRow;
  readonly columns: readonly Column[];
  readonly window: ColumnWindow;
  readonly end: number;
  readonly ranking: Ranking;
  readonly locked: number | null;
  readonly isLocked: boolean;
}

/** Header of the last column, by ranking. */
export const RANKING_HEADERS: Readonly<Record<Ranking, string>> = {
  specific: "Score",
  summed: "Sum",
  largest: "Max",
  often: "Tokens",
  rarest: "Density %",
};

function rankedValue(row: HeatRow, ranking: Ranking, digits: number): string {
  if (ranking === "rarest") return row.info.density === null ? "" : formatPercent(row.info.density, 2);
  if (ranking === "often") return String(row.cells.size);
  if (ranking === "specific") return formatFixed(row.sum * row.rarity, 1);
  return formatFixed(ranking === "summed" ? row.sum : row.largest, digits);
}

function Head({ row }: { readonly row: HeatRow }) {
  const links = usePageLinks();
  return (
    <th scope="row">
      <div>
        <span className="mono id">{row.expert}</span>
        <Link className="n" to={links.expert(row.expert)} title={row.info.label ?? undefined}>
          <ExpertLabel
            label={row.info.label}
            automatic={row.info.automatic}
            topTokens={row.info.top_tokens}
            expert={row.expert}
          />
        </Link>
        <PlusButton expert={row.expert} />
      </div>
    </th>
  );
}

interface CellProps {
  readonly row: HeatRow;
  readonly position: number;
  readonly end: number;
  readonly isLocked: boolean;
}

function Cell({ row, position, end, isLocked }: CellProps) {
  const cell = row.cells.get(position);
  const className = isLocked ? "lk" : undefined;
  if (cell === undefined) return <td className={className} />;
  return (
    <td className={className}>
      <button
        type="button"
        tabIndex={-1}
        data-position={position}
        data-expert={row.expert}
        className={`s${Math.max(1, sequentialStep(cell.activation, end))}`}
      >
        {cell.activation.toFixed(cellDigits(end))}
      </button>
    </td>
  );
}

export const HeatRowView = memo(function HeatRowView(props: HeatRowProps) {
  const { row, columns, window, end, ranking, locked, isLocked } = props;
  const after = columns.length - window.to;
  return (
    <tr className={isLocked ? "rowlk" : undefined}>
      <Head row={row} />
      {window.from > 0 && <td colSpan={window.from} />}
      {columns.slice(window.from, window.to).map(({ position }) => (
        <Cell key={position} row={row} position={position} end={end} isLocked={position === locked} />
      ))}
      {after > 0 && <td colSpan={after} />}
      <td className="sum num">{rankedValue(row, ranking, cellDigits(end))}</td>
    </tr>
  );
});

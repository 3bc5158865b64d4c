/** The table's columns: those that the server shows in it, and the tray. */

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { Column, ExpertRow } from "@/api/types";
import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { SparkHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatValue, isNumeric } from "@/components/experts/columns";
import { formatFixed, formatShare } from "@/lib/text/format";

export const cellClass = (column: Column) =>
  `c-${column.key.replaceAll("_", "-")}${isNumeric(column) || column.kind === "id" ? " num" : ""}`;

const MAX_BAR_WIDTH = 33;
const DECADES = 6;

/** Width of the bar of a density, on a log scale from one in a million to 1. */
function densityBarWidth(density: number): number {
  if (!(density > 0)) return 0;
  return Math.max(1, Math.round(MAX_BAR_WIDTH * (1 + Math.log10(density) / DECADES)));
}

function LabelCell({ row }: { readonly row: ExpertRow }) {
  const links = usePageLinks();
  return (
    <Link to={links.expert(row.expert)}>
      {row.active_tokens === 0 && row.label === null ? (
        <span className="dim">dead</span>
      ) : (
        <ExpertLabel label={row.label} automatic={row.automatic} />
      )}
      {row.label === null && <span className="sr">Expert {row.expert}</span>}
    </Link>
  );
}

function TopTokens({ row }: { readonly row: ExpertRow }) {
  return (
    <div className="whole-chips">
      {row.top_tokens.slice(0, 5).map((token) => (
        <TokenChip key={token.id} text={token.text} />
      ))}
    </div>
  );
}

/** Cells that are more than a number; `largest` is the maximum over the whole run, the end of the colour scale. */
const CELLS: Readonly<Record<string, (row: ExpertRow, largest: number) => ReactNode>> = {
  label: (row) => <LabelCell row={row} />,
  density: ({ density }) => (
    <>
      <i style={{ width: densityBarWidth(density) }} />
      {formatShare(density)}
    </>
  ),
  max_activation: (row, largest) =>
    row.max_activation > 0 ? <CoefficientCell value={row.max_activation} largest={largest} /> : formatFixed(0),
  top_tokens: (row) => <TopTokens row={row} />,
  histogram: (row) => <SparkHistogram counts={row.histogram} label="Histogram of activations, log counts" />,
};

export function cellOf(column: Column, row: ExpertRow, largest: number): ReactNode {
  return CELLS[column.key]?.(row, largest) ?? formatValue(column, row);
}

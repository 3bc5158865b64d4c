/** Columns of the experts table. */

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { ExpertRow } from "@/api/types";
import { ExpertLabel } from "@/components/expert-ref";
import { CoefficientCell } from "@/components/coefficient-bar";
import { usePageLinks } from "@/components/links";
import { SparkHistogram } from "@/components/mini-histogram";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatFixed, formatPercent, formatSigned } from "@/lib/format";

import type { Sort } from "./experts-params";

/** What a column needs besides its cells. */
export interface ColumnLook {
  readonly title: string;
  readonly unit?: string;
  readonly className: string;
  readonly sort?: Sort;
}

/** Looks by column id; their order is the order on screen. */
export const LOOKS: Readonly<Record<string, ColumnLook>> = {
  tray: { title: "", className: "c-plus" },
  expert: { title: "Id", className: "c-id num", sort: "expert" },
  label: { title: "Label", className: "c-label", sort: "label" },
  usage: { title: "Usage", unit: "%", className: "c-usage num", sort: "usage" },
  mean: { title: "Mean", unit: "coefficient", className: "c-mean num", sort: "mean" },
  largest: { title: "Largest", unit: "coefficient", className: "c-largest num", sort: "largest" },
  entropy: { title: "Token entropy", unit: "bits", className: "c-entropy num", sort: "entropy" },
  added_loss: { title: "Switched off", unit: "mnats", className: "c-off num", sort: "added_loss" },
  kl_up: { title: "Turned up", unit: "mnats", className: "c-up num", sort: "kl_up" },
  top_tokens: { title: "Top tokens", className: "c-tokens" },
  histogram: { title: "Coefficients", className: "c-histogram" },
};

const FULL_BAR = 33;
const DECADES = 6;

/** Length of the bar of a usage, on a log scale from one in a million to always. */
export function usageBar(usage: number): number {
  if (!(usage > 0)) return 0;
  return Math.max(1, Math.round(FULL_BAR * (1 + Math.log10(usage) / DECADES)));
}

function LabelCell({ row }: { readonly row: ExpertRow }) {
  const links = usePageLinks();
  return (
    <Link to={links.expert(row.expert)}>
      {row.active_tokens === 0 && row.label === null ? (
        <span className="dim">never active</span>
      ) : (
        <ExpertLabel label={row.label} automatic={row.automatic} />
      )}
      {row.label === null && <span className="sr">Expert {row.expert}</span>}
    </Link>
  );
}

function TopTokens({ row }: { readonly row: ExpertRow }) {
  return row.top_tokens.slice(0, 5).map((token) => <TokenChip key={token.id} text={token.text} />);
}

/** What a column shows of an expert; `largest` is the largest coefficient of the whole run, end of the colour scale. */
export type Cell = (row: ExpertRow, largest: number) => ReactNode;

/** By column id, as the looks. */
export const CELLS: Readonly<Record<string, Cell>> = {
  tray: (row) => <PlusButton expert={row.expert} />,
  expert: (row) => row.expert,
  label: (row) => <LabelCell row={row} />,
  usage: ({ usage }) => (
    <>
      <i style={{ width: usageBar(usage) }} />
      {formatPercent(usage)}
    </>
  ),
  mean: (row) => formatFixed(row.mean),
  largest: (row, largest) =>
    row.largest > 0 ? <CoefficientCell value={row.largest} largest={largest} /> : formatFixed(0),
  entropy: (row) => formatFixed(row.entropy),
  added_loss: (row) => (row.measured ? formatSigned(1000 * row.added_loss, 1) : "–"),
  kl_up: (row) => (row.measured ? formatFixed(1000 * row.kl_up, 1) : "–"),
  top_tokens: (row) => <TopTokens row={row} />,
  histogram: (row) => <SparkHistogram counts={row.histogram} label="Histogram of its coefficient" />,
};

import type { ReactNode } from "react";
import { Link } from "react-router";

import type { ExpertRow } from "@/api/types";
import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { SparkHistogram } from "@/components/plots/mini-histogram";
import { usePageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatFixed, formatFoundAgain, formatShare, formatSigned } from "@/lib/text/format";
import type { TermId } from "@/lib/text/glossary";
import type { OptionalColumn, Sort } from "@/pages/explore/experts/experts-params";

/** Header of a column. */
export interface ColumnHeader {
  readonly title: string;
  readonly unit?: string;
  readonly className: string;
  readonly sort?: Sort;
  readonly term?: TermId;
}

export type Column = "tray" | "expert" | "label" | OptionalColumn;

/** Headers by column id, in the order on screen. */
export const HEADERS: Readonly<Record<Column, ColumnHeader>> = {
  tray: { title: "", className: "c-plus" },
  expert: { title: "Id", className: "c-id num", sort: "expert" },
  label: { title: "Label", className: "c-label", sort: "label", term: "automatic_label" },
  density: { title: "Density", unit: "%", className: "c-density num", sort: "density", term: "density" },
  mean_activation: {
    title: "Mean",
    unit: "activation",
    className: "c-mean num",
    sort: "mean_activation",
    term: "mean_activation",
  },
  max_activation: {
    title: "Max",
    unit: "activation",
    className: "c-max num",
    sort: "max_activation",
    term: "max_activation",
  },
  entropy: { title: "Token entropy", unit: "bits", className: "c-entropy num", sort: "entropy", term: "entropy" },
  loss_increase: {
    title: "Δ loss ablated",
    unit: "nats",
    className: "c-ablated num",
    sort: "loss_increase",
    term: "loss_increase",
  },
  kl_amplified: {
    title: "KL at +p99",
    unit: "nats",
    className: "c-amplified num",
    sort: "kl_amplified",
    term: "kl_amplified",
  },
  recurrence: { title: "Found again", className: "c-recurrence num", sort: "recurrence", term: "recurrence" },
  top_tokens: { title: "Top tokens", className: "c-tokens", term: "top_tokens" },
  histogram: { title: "Activations", className: "c-histogram", term: "activation_histogram" },
};

const MAX_BAR_WIDTH = 33;
const DECADES = 6;

/** Width of the bar of a density, on a log scale from one in a million to 1. */
export function densityBarWidth(density: number): number {
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

/** Renders a cell; `largest` is the maximum over the whole run, the end of the colour scale. */
export type Cell = (row: ExpertRow, max_activation: number) => ReactNode;

/** Columns in the order on screen. */
export const COLUMNS = Object.keys(HEADERS) as Column[];

/** By column id, as the headers. */
export const CELLS: Readonly<Record<Column, Cell>> = {
  tray: (row) => <PlusButton expert={row.expert} />,
  expert: (row) => row.expert,
  label: (row) => <LabelCell row={row} />,
  density: ({ density }) => (
    <>
      <i style={{ width: densityBarWidth(density) }} />
      {formatShare(density)}
    </>
  ),
  mean_activation: (row) => formatFixed(row.mean_activation),
  max_activation: (row, largest) =>
    row.max_activation > 0 ? <CoefficientCell value={row.max_activation} largest={largest} /> : formatFixed(0),
  entropy: (row) => formatFixed(row.entropy),
  loss_increase: (row) => (row.loss_increase === null ? "–" : formatSigned(row.loss_increase, 4)),
  kl_amplified: (row) => (row.kl_amplified === null ? "–" : formatFixed(row.kl_amplified, 4)),
  recurrence: (row) => formatFoundAgain(row),
  top_tokens: (row) => <TopTokens row={row} />,
  histogram: (row) => <SparkHistogram counts={row.histogram} label="Histogram of activations, log counts" />,
};

/** Tooltips of the heat map's cells and column headers. */

import { shownAutomatic } from "@/components/experts/automatic-label";
import { ExpertLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";
import { TokenTip } from "@/components/tokens/token-tip";
import { formatCount, formatFixed } from "@/lib/text/format";

import type { Column, HeatRow, Predicted } from "./heat-rows";

export function CellTip({ row, column }: { readonly row: HeatRow; readonly column: Column }) {
  const cell = row.cells.get(column.position);
  return (
    <>
      <div className="hd">
        <span className="mono">{row.expert}</span>
        {(row.info.label !== null || shownAutomatic(row.info.automatic) !== null) && (
          <b>
            <ExpertLabel label={row.info.label} automatic={row.info.automatic} />
          </b>
        )}
      </div>
      <TokenTip
        text={column.token.text}
        id={column.token.id}
        activation={cell?.activation ?? null}
        largest={row.info.max_activation}
        {...(cell !== undefined && { rank: [cell.rank, cell.activeExperts] as const, share: cell.share })}
      />
    </>
  );
}

export function ColumnTip({ column, predicted }: { readonly column: Column; readonly predicted: Predicted }) {
  const { token, position } = column;
  const next = predicted?.[position];
  const nats = (value: number | undefined) => (value === undefined ? "…" : `${formatFixed(value, 4)} nats`);
  return (
    <>
      <div className="hd">
        <TokenChip text={token.text} />
        <span className="dim">token {formatCount(token.id)}</span>
      </div>
      <dl>
        <dt>Position</dt>
        <dd>{position}</dd>
        <dt>Active experts</dt>
        <dd>{token.experts.length}</dd>
        <dt>KL from original</dt>
        <dd>{nats(next?.kl)}</dd>
        <dt>KL with the MLP removed</dt>
        <dd>{nats(next?.zeroed_kl)}</dd>
      </dl>
    </>
  );
}

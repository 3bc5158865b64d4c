/** The path of one token: its strongest experts in each layer, in order, and the next token. */

import { Link } from "react-router";

import { CoefficientCell } from "@/components/experts/coefficient-bar";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { formatPercent } from "@/lib/text/format";
import type { Column, Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { ExpertsHead } from "@/pages/prompt/routing/token/experts-head";
import { NextToken } from "@/pages/prompt/routing/token/next-token";

import { TRACED_EXPERTS, type TraceLayer } from "./trace-rows";

interface PathPanelProps {
  readonly column: Column;
  readonly layers: readonly TraceLayer[];
  readonly predicted: Predicted;
  /** What replaces the MLPs. */
  readonly method: string;
}

function LayerOfPath({ layer, position }: { readonly layer: TraceLayer; readonly position: number }) {
  const experts = layer.tokens.get(position) ?? [];
  return (
    <tbody aria-label={`Layer ${layer.layer}`}>
      <tr>
        <th scope="rowgroup" colSpan={4} className="layer">
          Layer {layer.layer}
        </th>
      </tr>
      {experts.map(({ row, cell }) => (
        <tr key={row.expert}>
          <td className="a">
            <Link to={pageLinks(layer.run).expert(row.expert)}>
              <span className="mono id">{row.expert}</span>{" "}
              <ExpertLabel label={row.info.label} automatic={row.info.automatic} topTokens={row.info.top_tokens} />
            </Link>
          </td>
          <td className="num">
            <CoefficientCell value={cell.coefficient} largest={layer.end} />
          </td>
          <td className="num">{formatPercent(cell.share, 0)}</td>
          <td>
            <PlusButton expert={row.expert} run={layer.run} />
          </td>
        </tr>
      ))}
      {experts.length === 0 && (
        <tr>
          <td colSpan={4} className="dim">
            No expert below this density
          </td>
        </tr>
      )}
    </tbody>
  );
}

export function PathPanel({ column, layers, predicted, method }: PathPanelProps) {
  return (
    <aside className="token-panel" aria-label="Path of the token">
      <section>
        <div className="pane-h">
          <h2>
            Path of <TokenChip text={column.token.text} />
          </h2>
          <span className="note">position {column.position}</span>
        </div>
        <p className="dim">
          The {TRACED_EXPERTS} experts of each layer with the largest share × rarity. Activation colours are per layer.
        </p>
        <table className="path">
          <ExpertsHead>
            <th>Expert</th>
          </ExpertsHead>
          {layers.map((layer) => (
            <LayerOfPath key={layer.run} layer={layer} position={column.position} />
          ))}
        </table>
      </section>
      <NextToken token={predicted?.[column.position]} method={method} />
    </aside>
  );
}

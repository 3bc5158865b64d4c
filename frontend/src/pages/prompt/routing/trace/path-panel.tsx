/** The path of one token: its strongest experts in each layer, in order, and the next token. */

import "@/pages/prompt/routing/token/path.css";

import { TokenChip } from "@/components/tokens/token-chip";
import type { Column, Predicted } from "@/pages/prompt/routing/heat-map/heat-rows";
import { ExpertRow } from "@/pages/prompt/routing/token/expert-row";
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
        <ExpertRow
          key={row.expert}
          run={layer.run}
          routed={{ expert: row.expert, ...cell }}
          info={row.info}
          end={layer.end}
        />
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
    <aside className="token-panel trace-path" aria-label="Path of the token">
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

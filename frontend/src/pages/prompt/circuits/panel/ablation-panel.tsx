/** Ablation of the selected experts: predicted and measured change of the logit, and a link to Steering. */

import { useQuery } from "@tanstack/react-query";

import { type CircuitRequest, circuitEffectsQuery } from "@/api/circuits";
import type { CircuitEffect, CircuitNode, CircuitResponse } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { Button, LinkButton } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/states";
import { useDebouncedValue } from "@/hooks/use-debounced-value";
import { formatProbability, formatSigned } from "@/lib/text/format";
import { nodeName, signClass } from "@/pages/prompt/circuits/graph/node-labels";

import { steeringUrl, ablatedExperts } from "./ablation-groups";

function Comparison({ effect, target }: { readonly effect: CircuitEffect; readonly target: number }) {
  return (
    <table className="comparison">
      <tbody>
        <tr>
          <th scope="row">Predicted by the graph</th>
          <td className={`num ${signClass(effect.predicted)}`}>{formatSigned(effect.predicted, 3)}</td>
        </tr>
        <tr>
          <th scope="row">Measured</th>
          <td className={`num ${signClass(effect.measured)}`}>{formatSigned(effect.measured, 3)}</td>
        </tr>
        <tr>
          <th scope="row">Probability</th>
          <td className="num">
            {formatProbability(target)} → {formatProbability(effect.probability)} %
          </td>
        </tr>
      </tbody>
    </table>
  );
}

interface AblationPanelProps {
  readonly response: CircuitResponse;
  readonly request: CircuitRequest;
  readonly nodes: readonly CircuitNode[];
  readonly onClear: () => void;
}

export function AblationPanel({ response, request, nodes, onClear }: AblationPanelProps) {
  const { name: run } = useCurrentRun();
  const group = useDebouncedValue(JSON.stringify(ablatedExperts(nodes)));
  const groups = group === "[]" ? [] : [JSON.parse(group) as ReturnType<typeof ablatedExperts>];
  const target = response.graph.target;
  const { data, error, isFetching } = useQuery(circuitEffectsQuery({ ...request, target: target.id }, groups));
  const effect = data?.effects[0];
  if (nodes.length === 0) {
    return (
      <section aria-label="Ablation">
        <div className="pane-h">
          <h2>Ablate experts</h2>
        </div>
        <p className="dim">
          Select experts in the graph or in the table. Compare the logit change the graph predicts with the one measured
          when they are ablated.
        </p>
      </section>
    );
  }
  return (
    <section aria-label="Ablation" aria-busy={isFetching}>
      <div className="pane-h">
        <h2>{nodes.length === 1 ? "1 expert" : `${nodes.length} experts`} ablated</h2>
        <span className="note">logit change</span>
        <span className="grow" />
        <Button size="small" variant="ghost" icon="close" shortcut="release" onClick={onClear}>
          Clear
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {effect !== undefined && <Comparison effect={effect} target={target.probability} />}
      {effect === undefined && error === null && <p className="dim">Running the model without them…</p>}
      <ul className="ablated-list">
        {nodes.map((node) => (
          <li key={`${node.position}.${node.layer ?? ""}.${node.expert ?? ""}`}>{nodeName(response.graph, node)}</li>
        ))}
      </ul>
      {run !== null && (
        <LinkButton size="small" variant="primary" to={steeringUrl(response, nodes, run)}>
          Open in Steering
        </LinkButton>
      )}
    </section>
  );
}

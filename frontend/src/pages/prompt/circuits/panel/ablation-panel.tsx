/** Ablation of the selected experts: predicted and measured change of the logit, and a link to Steering. */

import { useQuery } from "@tanstack/react-query";

import { type AblatedExpert, type CircuitRequest, circuitEffectsQuery } from "@/api/circuits";
import type { AblationEffect, CircuitResponse } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { Button, LinkButton } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/states";
import { useDebouncedValue } from "@/hooks/use-debounced-value";
import { formatProbability, formatSigned } from "@/lib/text/format";
import { nodeName, signClass } from "@/pages/prompt/circuits/graph/node-labels";

import { steeringUrl, ablatedExperts } from "./ablation-groups";

function Comparison({ effect, target }: { readonly effect: AblationEffect; readonly target: number }) {
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
  /** Null while the response belongs to an earlier request. */
  readonly request: CircuitRequest | null;
  /** Ids of the nodes. */
  readonly ablated: readonly string[];
  readonly onChange: (ablated: readonly string[]) => void;
}

/** Nothing while no expert is ablated. */
export function AblationPanel({ response, request, ablated, onChange }: AblationPanelProps) {
  const { name: run } = useCurrentRun();
  const group = useDebouncedValue(JSON.stringify(ablatedExperts(response, ablated)));
  const experts = JSON.parse(group) as readonly AblatedExpert[];
  const target = response.graph.target;
  const { data, error, isFetching } = useQuery(
    circuitEffectsQuery(request && { ...request, target: target.id }, experts.length === 0 ? [] : [experts]),
  );
  const effect = data?.effects[0];
  if (experts.length === 0) return null;
  return (
    <section aria-label="Ablation" aria-busy={isFetching}>
      <div className="pane-h">
        <h2>{experts.length === 1 ? "1 expert" : `${experts.length} experts`} ablated</h2>
        <span className="note">logit change</span>
        <span className="grow" />
        <Button size="small" variant="ghost" icon="close" shortcut="release" onClick={() => onChange([])}>
          Clear
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {effect !== undefined && <Comparison effect={effect} target={target.probability} />}
      {effect === undefined && error === null && <p className="dim">Running the model without them…</p>}
      <ul className="pins">
        {ablated.map((id) => {
          const node = response.graph.nodes[response.ids.indexOf(id)];
          if (node === undefined) return null;
          const name = nodeName(response, node);
          return (
            <li key={id}>
              <span className="name">{name}</span>
              <Button
                size="small"
                variant="ghost"
                icon="close"
                aria-label={`Restore ${name}`}
                onClick={() => onChange(ablated.filter((other) => other !== id))}
              />
            </li>
          );
        })}
      </ul>
      {run !== null && (
        <LinkButton size="small" variant="primary" to={steeringUrl(response, experts, run)}>
          Open in Steering
        </LinkButton>
      )}
    </section>
  );
}

/** The chosen experts switched off: what the graph predicts, what the language model does, and the way to Steering. */

import { useQuery } from "@tanstack/react-query";

import { type CircuitAsked, circuitEffectsQuery } from "@/api/circuits";
import type { CircuitEffect, CircuitNode, CircuitResponse } from "@/api/types";
import { Button, LinkButton } from "@/components/button";
import { useCurrentRun } from "@/components/current-run";
import { useSettled } from "@/components/settled";
import { ErrorState } from "@/components/states";
import { formatProbability, formatSigned } from "@/lib/format";

import { nodeName, side } from "./node-words";
import { steeringAddress, switches } from "./switches";

function Comparison({ effect, target }: { readonly effect: CircuitEffect; readonly target: number }) {
  return (
    <table className="comparison">
      <tbody>
        <tr>
          <th scope="row">Predicted by the graph</th>
          <td className={`num ${side(effect.predicted)}`}>{formatSigned(effect.predicted, 3)}</td>
        </tr>
        <tr>
          <th scope="row">Measured</th>
          <td className={`num ${side(effect.measured)}`}>{formatSigned(effect.measured, 3)}</td>
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

interface SwitchOffProps {
  readonly response: CircuitResponse;
  readonly asked: CircuitAsked;
  readonly nodes: readonly CircuitNode[];
  readonly onClear: () => void;
}

export function SwitchOff({ response, asked, nodes, onClear }: SwitchOffProps) {
  const { name: run } = useCurrentRun();
  const group = useSettled(JSON.stringify(switches(nodes)));
  const groups = group === "[]" ? [] : [JSON.parse(group) as ReturnType<typeof switches>];
  const target = response.graph.target;
  const { data, error, isFetching } = useQuery(circuitEffectsQuery({ ...asked, target: target.id }, groups));
  const effect = data?.effects[0];
  if (nodes.length === 0) {
    return (
      <section aria-label="Switched off">
        <div className="pane-h">
          <h2>Switch experts off</h2>
        </div>
        <p className="dim">
          Choose experts in the graph or in the table: here stands what the graph predicts of the logit without them,
          and what the language model does.
        </p>
      </section>
    );
  }
  return (
    <section aria-label="Switched off" aria-busy={isFetching}>
      <div className="pane-h">
        <h2>{nodes.length === 1 ? "1 expert" : `${nodes.length} experts`} off</h2>
        <span className="note">change of the logit</span>
        <span className="grow" />
        <Button size="small" variant="ghost" icon="close" shortcut="release" onClick={onClear}>
          Clear
        </Button>
      </div>
      {error !== null && <ErrorState error={error} />}
      {effect !== undefined && <Comparison effect={effect} target={target.probability} />}
      {effect === undefined && error === null && <p className="dim">The language model runs without them…</p>}
      <ul className="chosen-list">
        {nodes.map((node) => (
          <li key={`${node.position}.${node.layer ?? ""}.${node.expert ?? ""}`}>{nodeName(response.graph, node)}</li>
        ))}
      </ul>
      {run !== null && (
        <LinkButton size="small" variant="primary" to={steeringAddress(response, nodes, run)}>
          Steer without them
        </LinkButton>
      )}
    </section>
  );
}

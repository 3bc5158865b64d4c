/** Predicted beside measured effects: of the selected node, and of the experts with the largest measured effect. */

import { useQuery } from "@tanstack/react-query";

import { type CircuitRequest, circuitEffectsQuery } from "@/api/circuits";
import type { CircuitResponse } from "@/api/types";
import { formatSigned } from "@/lib/text/format";
import {
  checkLayers,
  comparison,
  describeLayer,
  isWeak,
  type MeasuredEffects,
} from "@/pages/prompt/circuits/check/measured";
import { nodeName, shortName, signClass, tokenText } from "@/pages/prompt/circuits/graph/node-labels";
import type { ShownNode } from "@/pages/prompt/circuits/graph/shown-graph";

import { ablatedExperts } from "./ablation-groups";

const MAX_LISTED = 5;

interface BarProps {
  readonly value: number;
  /** The size that fills half the cell. */
  readonly largestValue: number;
}

/** A bar to the right of the middle for positive values, to the left for negative ones. */
export function Bar({ value, largestValue }: BarProps) {
  const width = (50 * Math.abs(value)) / largestValue;
  return (
    <td className="b">
      <i className={signClass(value)} style={{ width: `${width}%`, left: value < 0 ? `${50 - width}%` : "50%" }} />
    </td>
  );
}

function Effect({ name, value, largestValue }: BarProps & { readonly name: string }) {
  return (
    <tr>
      <th scope="row">{name}</th>
      <Bar value={value} largestValue={largestValue} />
      <td className={`num ${signClass(value)}`}>{formatSigned(value, 3)}</td>
    </tr>
  );
}

function Effects({ predicted, measured }: { readonly predicted: number; readonly measured: number }) {
  const largestValue = Math.max(1e-9, Math.abs(predicted), Math.abs(measured));
  return (
    <table className="logit-attribution">
      <tbody>
        <Effect name="Predicted by the graph" value={predicted} largestValue={largestValue} />
        <Effect name="Measured by ablation" value={measured} largestValue={largestValue} />
      </tbody>
    </table>
  );
}

interface CheckedProps {
  readonly response: CircuitResponse;
  readonly measured: MeasuredEffects;
}

interface LargestEffectsProps extends CheckedProps {
  readonly onSelect: (id: string) => void;
}

/** Effects of an expert on the explained logit. Other nodes are not ablated. */
export function CheckedEffect({ response, measured, shown }: CheckedProps & { readonly shown: ShownNode }) {
  const { node, id } = shown;
  if (measured.size === 0) return null;
  if (shown.supernode !== null) return null;
  if (node.kind !== "expert") return <p className="dim">Not measured: only experts are ablated.</p>;
  const change = measured.get(id);
  if (change === undefined) {
    return <p className="dim">Not measured: the check ablates the {measured.size} most influential experts.</p>;
  }
  const layer = checkLayers(response, measured).find((each) => each.layer === node.layer);
  return (
    <div className="checked-effect">
      <h3>Total effect on the logit</h3>
      <Effects predicted={node.effect} measured={-change} />
      <p>
        {comparison(node.effect, -change)}
        {layer !== undefined &&
          isWeak(layer) &&
          ` Predictions in its layer are unreliable on this prompt. Measured over ${layer.experts} experts of ${describeLayer(layer)}.`}
      </p>
    </div>
  );
}

interface GroupEffectProps {
  readonly response: CircuitResponse;
  /** Null for a graph from a file, and while the response belongs to an earlier request. */
  readonly request: CircuitRequest | null;
  readonly shown: ShownNode;
  /** Ids of the ablated nodes. */
  readonly ablated: readonly string[];
  /** False for a graph from a file. */
  readonly canAblate: boolean;
}

/** Effect of the experts of a supernode, measured together once they are ablated. */
export function GroupEffect({ response, request, shown, ablated, canAblate }: GroupEffectProps) {
  const ids = shown.members.flatMap((member) =>
    response.graph.nodes[member]?.kind === "expert" ? (response.ids[member] ?? []) : [],
  );
  const isAblated = ids.length > 0 && ids.every((id) => ablated.includes(id));
  const target = response.graph.target.id;
  const { data, error } = useQuery(
    circuitEffectsQuery(request && { ...request, target }, isAblated ? [ablatedExperts(response, ids)] : []),
  );
  const effect = data?.effects[0];
  if (ids.length === 0) return <p className="dim">Not measured: only experts are ablated.</p>;
  if (!canAblate) return <p className="dim">Not measured as a group.</p>;
  if (!isAblated) return <p className="dim">Not measured as a group. Ablate it to measure its effect.</p>;
  if (effect === undefined) return <p className="dim">{error?.message ?? "Measuring the group…"}</p>;
  return (
    <div className="checked-effect">
      <h3>Total effect on the logit, of its {ids.length === 1 ? "expert" : `${ids.length} experts together`}</h3>
      <Effects predicted={-effect.predicted} measured={-effect.measured} />
      <p>{comparison(-effect.predicted, -effect.measured)}</p>
    </div>
  );
}

/** The experts that matter most when they are ablated; those that the graph predicts, until they are measured. */
export function LargestEffects({ response, measured, onSelect }: LargestEffectsProps) {
  const { graph, ids } = response;
  const isMeasured = measured.size > 0;
  const experts = graph.nodes.flatMap((node, index) => {
    const [id = "", change] = [ids[index], measured.get(ids[index] ?? "")];
    if (node.kind !== "expert" || (isMeasured && change === undefined)) return [];
    return [{ node, id, effect: change === undefined ? null : -change }];
  });
  if (experts.length === 0) return null;
  const size = ({ node, effect }: (typeof experts)[number]) => Math.abs(effect ?? node.effect);
  const largest = experts.toSorted((a, b) => size(b) - size(a)).slice(0, MAX_LISTED);
  return (
    <table className="largest-effects">
      <caption>
        Largest {isMeasured ? "measured" : "predicted"} effects on the logit, of {experts.length} experts
      </caption>
      <thead>
        <tr>
          <th>Expert</th>
          <th className="num">Predicted</th>
          <th className="num">Measured</th>
        </tr>
      </thead>
      <tbody>
        {largest.map(({ node, id, effect }) => (
          <tr key={id}>
            <th scope="row">
              <button type="button" className="name" title={nodeName(response, node)} onClick={() => onSelect(id)}>
                {shortName(response, node)}
              </button>
              <span className="dim">
                layer {node.layer}, at {tokenText(response.graph, node.position)}
              </span>
            </th>
            <td className={`num ${signClass(node.effect)}`}>{formatSigned(node.effect, 3)}</td>
            <td className={`num ${signClass(effect ?? 0)}`}>{effect === null ? "–" : formatSigned(effect, 3)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Side panel of the graph: explained token, logit attribution and node details. */

import { Link } from "react-router";

import type { CircuitResponse } from "@/api/types";
import { pageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { Button } from "@/components/ui/button";
import { NumberInput } from "@/components/ui/number-input";
import type { SetParams, Values } from "@/hooks/use-url-state";
import { formatFixed, formatPercent, formatProbability, formatSigned } from "@/lib/text/format";
import type { CIRCUIT_PARAMS } from "@/pages/prompt/circuits/circuit-params";
import { nodeName, signClass } from "@/pages/prompt/circuits/graph/node-labels";
import { EdgeList, NodeFacts, NodeLabel } from "@/pages/prompt/circuits/graph/node-tip";

type Source = "expert" | "embedding" | "mlp" | "error" | "bias";

const SOURCES: readonly (readonly [Source, string])[] = [
  ["expert", "Experts"],
  ["embedding", "Tokens"],
  ["mlp", "MLPs without a run"],
  ["error", "Error nodes"],
  ["bias", "Biases"],
];
const MAX_EDGES = 8;

interface PanelProps {
  readonly response: CircuitResponse;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

/** Choice of the next token to explain. */
export function TargetPane({ response, params, setParams }: PanelProps) {
  const { target, candidates, tokens } = response.graph;
  const options = candidates.some(({ id }) => id === target.id) ? candidates : [target, ...candidates];
  return (
    <section aria-label="Explained token">
      <div className="pane-h">
        <h2>
          Next token: <TokenChip text={target.text} />
        </h2>
        <span className="grow" />
        <label className="density-filter">
          at position{" "}
          <NumberInput
            label="Position"
            value={params.at ?? tokens.length - 1}
            digits={0}
            min={0}
            max={127}
            onCommit={(at) => setParams({ at: Math.round(at), target: null, chosen: [] }, "push")}
          />
        </label>
      </div>
      <div className="candidates" role="group" aria-label="Likely next tokens">
        {options.map((candidate) => (
          <Button
            key={candidate.id}
            size="small"
            variant={candidate.id === target.id ? "chosen" : "plain"}
            aria-pressed={candidate.id === target.id}
            onClick={() => setParams({ target: candidate.id }, "push")}
          >
            <TokenChip text={candidate.text} />{" "}
            <span className="num">{formatProbability(candidate.probability)} %</span>
          </Button>
        ))}
      </div>
    </section>
  );
}

function Bar({ value, largestValue }: { readonly value: number; readonly largestValue: number }) {
  const width = (50 * Math.abs(value)) / largestValue;
  return (
    <td className="b">
      <i className={signClass(value)} style={{ width: `${width}%`, left: value < 0 ? `${50 - width}%` : "50%" }} />
    </td>
  );
}

/** Logit attribution by kind of source, direct and over all paths. */
export function LogitAttribution({ response }: { readonly response: CircuitResponse }) {
  const { direct, origins, target } = response.graph;
  const largestValue = Math.max(1e-9, ...Object.values(direct).map((value) => Math.abs(value)));
  return (
    <section aria-label="Logit attribution" className="logit-attribution">
      <div className="pane-h">
        <h2>Logit attribution</h2>
      </div>
      <table>
        <thead>
          <tr>
            <th>
              <span className="sr">Source</span>
            </th>
            <th className="num" colSpan={2}>
              direct
            </th>
            <th className="num">
              source <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {SOURCES.filter(([kind]) => direct[kind] !== undefined).map(([kind, name]) => (
            <tr key={kind}>
              <th scope="row">{name}</th>
              <Bar value={direct[kind] ?? 0} largestValue={largestValue} />
              <td className={`num ${signClass(direct[kind] ?? 0)}`}>{formatSigned(direct[kind] ?? 0, 2)}</td>
              <td className="num">{origins[kind] === undefined ? "" : formatPercent(origins[kind], 1)}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Logit above the mean</th>
            <td />
            <td className="num">{formatFixed(target.logit, 2)}</td>
            <td />
          </tr>
        </tfoot>
      </table>
    </section>
  );
}

/** Details of the node hovered last. */
export function NodePane({ response, index }: { readonly response: CircuitResponse; readonly index: number }) {
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  return (
    <section className="node-pane" aria-label="Node details">
      <div className="pane-h">
        <h2>{nodeName(response.graph, node)}</h2>
      </div>
      <NodeLabel response={response} index={index} />
      <NodeFacts response={response} index={index} />
      {node.run !== null && node.expert !== null && (
        <p>
          <Link className="link" to={pageLinks(node.run).expert(node.expert)}>
            Open expert {node.expert}
          </Link>
        </p>
      )}
      <EdgeList response={response} index={index} direction="in" limit={MAX_EDGES} />
      <EdgeList response={response} index={index} direction="out" limit={MAX_EDGES} />
    </section>
  );
}

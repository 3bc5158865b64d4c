/** Beside the graph: which token is explained, what its logit is made of, and a node in full. */

import { Link } from "react-router";

import type { CircuitResponse } from "@/api/types";
import { Button } from "@/components/button";
import { pageLinks } from "@/components/links";
import { NumberInput } from "@/components/number-input";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatPercent, formatProbability, formatSigned } from "@/lib/format";
import type { SetParams, Values } from "@/url-state";

import type { CIRCUIT_PARAMS } from "./circuit-params";
import { EdgeList, NodeFacts, NodeLabel } from "./node-tip";
import { nodeName, side } from "./node-words";

type Source = "expert" | "embedding" | "mlp" | "error" | "bias";

const SOURCES: readonly (readonly [Source, string])[] = [
  ["expert", "Experts"],
  ["embedding", "Tokens"],
  ["mlp", "MLPs without a run"],
  ["error", "What layers miss"],
  ["bias", "Biases"],
];
const EDGES = 8;

interface PanelProps {
  readonly response: CircuitResponse;
  readonly params: Values<typeof CIRCUIT_PARAMS>;
  readonly setParams: SetParams<typeof CIRCUIT_PARAMS>;
}

/** The next token that is explained, chosen among those that are likely. */
export function TargetPane({ response, params, setParams }: PanelProps) {
  const { target, candidates, tokens } = response.graph;
  const offered = candidates.some(({ id }) => id === target.id) ? candidates : [target, ...candidates];
  return (
    <section aria-label="Next token that is explained">
      <div className="pane-h">
        <h2>
          Next token: <TokenChip text={target.text} />
        </h2>
        <span className="grow" />
        <label className="usage-filter">
          behind token{" "}
          <NumberInput
            label="Behind token"
            value={params.at ?? tokens.length - 1}
            digits={0}
            min={0}
            max={127}
            onCommit={(at) => setParams({ at: Math.round(at), target: null, chosen: [] }, "push")}
          />
        </label>
      </div>
      <div className="candidates" role="group" aria-label="Likely next tokens">
        {offered.map((one) => (
          <Button
            key={one.id}
            size="small"
            variant={one.id === target.id ? "chosen" : "plain"}
            aria-pressed={one.id === target.id}
            onClick={() => setParams({ target: one.id }, "push")}
          >
            <TokenChip text={one.text} /> <span className="num">{formatProbability(one.probability)} %</span>
          </Button>
        ))}
      </div>
    </section>
  );
}

function Bar({ value, most }: { readonly value: number; readonly most: number }) {
  const width = (50 * Math.abs(value)) / most;
  return (
    <td className="b">
      <i className={side(value)} style={{ width: `${width}%`, left: value < 0 ? `${50 - width}%` : "50%" }} />
    </td>
  );
}

/** The logit as a sum over kinds of sources, and where paths to it begin. */
export function MadeOf({ response }: { readonly response: CircuitResponse }) {
  const { direct, begins, target } = response.graph;
  const most = Math.max(1e-9, ...Object.values(direct).map((value) => Math.abs(value)));
  return (
    <section aria-label="What the logit is made of" className="made-of">
      <div className="pane-h">
        <h2>What the logit is made of</h2>
      </div>
      <table>
        <thead>
          <tr>
            <th>
              <span className="sr">Source</span>
            </th>
            <th className="num" colSpan={2}>
              adds
            </th>
            <th className="num">
              paths begin <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {SOURCES.filter(([kind]) => direct[kind] !== undefined).map(([kind, name]) => (
            <tr key={kind}>
              <th scope="row">{name}</th>
              <Bar value={direct[kind] ?? 0} most={most} />
              <td className={`num ${side(direct[kind] ?? 0)}`}>{formatSigned(direct[kind] ?? 0, 2)}</td>
              <td className="num">{begins[kind] === undefined ? "" : formatPercent(begins[kind], 1)}</td>
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

/** The node that was pointed at last, with its edges. */
export function NodePane({ response, index }: { readonly response: CircuitResponse; readonly index: number }) {
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  return (
    <section className="node-pane" aria-label="The node in full">
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
      <EdgeList response={response} index={index} way="in" most={EDGES} />
      <EdgeList response={response} index={index} way="out" most={EDGES} />
    </section>
  );
}

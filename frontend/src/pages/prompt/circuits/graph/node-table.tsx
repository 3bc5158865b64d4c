/** The graph as accessible tables of nodes and edges. */

import { Link } from "react-router";

import type { CircuitNode, CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatPercent, formatSigned } from "@/lib/text/format";
import { type MeasuredEffects, mismatch } from "@/pages/prompt/circuits/check/measured";

import { nodeExpertInfo, nodeName, signClass } from "./node-labels";
import { TrayButton } from "./tray-button";
import { useExpertUrl } from "./use-expert-url";

interface TableProps {
  readonly response: CircuitResponse;
  readonly ablated: ReadonlySet<string>;
  readonly measured: MeasuredEffects;
  /** Null for a graph from a file, whose experts cannot be ablated. */
  readonly onAblate: ((id: string) => void) | null;
}

const OTHER_KINDS = { target: "Next token", error: "Error node", mlp: "Original MLP", embedding: "Token" };

function Signed({ value, mark = null }: { readonly value: number; readonly mark?: string | null }) {
  return (
    <td className={`num ${signClass(value)}`}>
      {mark !== null && <span className="mismatch">{mark} </span>}
      {formatSigned(value, 3)}
    </td>
  );
}

/** Indices of all nodes but the target: experts first, each kind by descending influence. */
function tableOrder({ graph }: CircuitResponse): readonly number[] {
  const isOther = (index: number) => Number(graph.nodes[index]?.kind !== "expert");
  return graph.nodes
    .map((_, index) => index)
    .slice(1)
    .sort((a, b) => isOther(a) - isOther(b) || a - b);
}

function NodeCell({ response, node }: { readonly response: CircuitResponse; readonly node: CircuitNode }) {
  const url = useExpertUrl()(node);
  const info = nodeExpertInfo(response, node);
  if (node.kind !== "expert") return <span>{OTHER_KINDS[node.kind]}</span>;
  // A graph from a file has no more about an expert than its label.
  if (info === undefined) return <span>Expert {node.expert}</span>;
  const name = (
    <>
      <span className="mono id">{node.expert}</span>{" "}
      <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
    </>
  );
  return url === null ? <span>{name}</span> : <Link to={url}>{name}</Link>;
}

function NodeRow({ response, ablated, measured, onAblate, index }: TableProps & { readonly index: number }) {
  const [node, id] = [response.graph.nodes[index], response.ids[index]];
  if (node === undefined || id === undefined) return null;
  const change = measured.get(id);
  return (
    <tr className={ablated.has(id) ? "rowlk" : undefined}>
      <td>
        {node.kind === "expert" && onAblate !== null && (
          <input
            type="checkbox"
            aria-label={nodeName(response, node)}
            checked={ablated.has(id)}
            onChange={() => onAblate(id)}
          />
        )}
      </td>
      <td className="what">
        <NodeCell response={response} node={node} />
      </td>
      <td>
        <TokenChip text={response.graph.tokens[node.position]?.text ?? ""} />
      </td>
      <td className="num">{node.layer ?? ""}</td>
      <td className="num">{formatPercent(node.influence, 1)}</td>
      <Signed value={node.direct} />
      <Signed value={node.effect} />
      {measured.size > 0 && (change === undefined ? <td /> : <Signed value={-change} mark={mismatch(node, change)} />)}
      {onAblate !== null && (
        <td>
          <TrayButton node={node} />
        </td>
      )}
    </tr>
  );
}

export function NodeTable(props: TableProps) {
  const { response, measured } = props;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table circuit-table" tabIndex={0} role="region" aria-label="Nodes of the circuit">
      <table className="grid plain">
        <thead>
          <tr>
            {props.onAblate === null ? <td /> : <th>Ablate</th>}
            <th>Node</th>
            <th>Token</th>
            <th className="num">Layer</th>
            <th className="num">
              <Term id="influence">Influence</Term> <span className="unit">%</span>
            </th>
            <th className="num">
              <Term id="direct_effect">Direct effect</Term>
            </th>
            <th className="num">
              <Term id="total_effect">Total effect</Term>
            </th>
            {measured.size > 0 && <th className="num">Measured effect</th>}
            {props.onAblate !== null && (
              <th>
                <span className="sr">Tray</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {tableOrder(response).map((index) => (
            <NodeRow key={index} {...props} index={index} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function EdgeTable({ response }: { readonly response: CircuitResponse }) {
  const { graph } = response;
  const nameOf = (index: number) => {
    const node = graph.nodes[index];
    return node === undefined ? "" : nodeName(response, node);
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolling needs keyboard focus
    <div className="figure-table circuit-table" tabIndex={0} role="region" aria-label="Edges of the circuit">
      <table className="grid plain">
        <thead>
          <tr>
            <th>From</th>
            <th>To</th>
            <th className="num">Weight</th>
            <th className="num">
              <Term id="influence">Influence</Term> <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {graph.edges.map((edge) => (
            <tr key={`${edge.source}-${edge.target}`}>
              <td>{nameOf(edge.source)}</td>
              <td>{nameOf(edge.target)}</td>
              <Signed value={edge.weight} />
              <td className="num">{formatPercent(edge.influence, 1)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

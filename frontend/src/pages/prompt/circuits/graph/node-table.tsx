/** The graph as accessible tables of nodes and edges. */

import { Link } from "react-router";

import type { CircuitEffect, CircuitNode, CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { pageLinks } from "@/components/runs/page-links";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatPercent, formatSigned } from "@/lib/text/format";
import { type ChosenExpert, chosenKey } from "@/pages/prompt/circuits/circuit-params";

import { nodeExpert, nodeExpertInfo, nodeName, signClass } from "./node-labels";

/** Measured effects of single experts, by key. */
export type MeasuredEffects = ReadonlyMap<string, CircuitEffect>;

interface TableProps {
  readonly response: CircuitResponse;
  readonly chosen: readonly ChosenExpert[];
  readonly measured: MeasuredEffects;
  readonly onToggle: (expert: ChosenExpert) => void;
}

function Signed({ value }: { readonly value: number }) {
  return <td className={`num ${signClass(value)}`}>{formatSigned(value, 3)}</td>;
}

function NodeCell({ response, node }: { readonly response: CircuitResponse; readonly node: CircuitNode }) {
  const info = nodeExpertInfo(response, node);
  if (node.expert === null || node.run === null) {
    const names = { target: "Next token", error: "Error node", mlp: "Original MLP", embedding: "Token" };
    return <span>{node.kind === "expert" ? "" : names[node.kind]}</span>;
  }
  return (
    <Link to={pageLinks(node.run).expert(node.expert)}>
      <span className="mono id">{node.expert}</span>{" "}
      <ExpertLabel
        label={info?.label ?? null}
        automatic={info?.automatic}
        {...(info !== undefined && { topTokens: info.top_tokens })}
      />
    </Link>
  );
}

function NodeRow({ response, chosen, measured, onToggle, node }: TableProps & { readonly node: CircuitNode }) {
  const expert = nodeExpert(node);
  const key = expert === null ? "" : chosenKey(expert);
  const isChosen = chosen.some((one) => chosenKey(one) === key);
  const effect = measured.get(key);
  return (
    <tr className={isChosen ? "rowlk" : undefined}>
      <td>
        {expert !== null && (
          <input
            type="checkbox"
            aria-label={nodeName(response.graph, node)}
            checked={isChosen}
            onChange={() => onToggle(expert)}
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
      {measured.size > 0 && (effect === undefined ? <td /> : <Signed value={-effect.measured} />)}
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
            <th>
              <span className="sr">Selected</span>
            </th>
            <th>Node</th>
            <th>Token</th>
            <th className="num">Layer</th>
            <th className="num">
              Influence <span className="unit">%</span>
            </th>
            <th className="num">Direct effect</th>
            <th className="num">Total effect</th>
            {measured.size > 0 && <th className="num">Measured</th>}
          </tr>
        </thead>
        <tbody>
          {response.graph.nodes.slice(1).map((node, i) => (
            <NodeRow key={i} {...props} node={node} />
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
    return node === undefined ? "" : nodeName(graph, node);
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
              Influence <span className="unit">%</span>
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

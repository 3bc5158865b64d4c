/** Tooltip of a node, with its strongest incoming and outgoing edges. */

import type { CircuitResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { ExpertLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatPercent, formatSigned } from "@/lib/text/format";

import { nodeEdges, nodeExpertInfo, nodeName, signClass } from "./node-labels";

const MAX_EDGES = 4;

interface NodeProps {
  readonly response: CircuitResponse;
  readonly index: number;
}

export function EdgeList({
  response,
  index,
  direction,
  limit,
}: NodeProps & { direction: "in" | "out"; limit: number }) {
  const { graph } = response;
  const edges = nodeEdges(graph, index, direction);
  if (edges.length === 0) return null;
  return (
    <div className="edge-list">
      <h3>{direction === "in" ? "Inputs" : "Outputs"}</h3>
      <ul>
        {edges.slice(0, limit).map((edge) => {
          const other = graph.nodes[edge.index];
          if (other === undefined) return null;
          return (
            <li key={edge.index}>
              <span className={`num ${signClass(edge.weight)}`}>{formatSigned(edge.weight, 3)}</span>{" "}
              {nodeName(graph, other)}
            </li>
          );
        })}
      </ul>
      {edges.length > limit && <p className="dim">and {edges.length - limit} more</p>}
    </div>
  );
}

export function NodeFacts({ response, index }: NodeProps) {
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  if (node.kind === "target") {
    const { target } = response.graph;
    return (
      <dl>
        <dt>Probability</dt>
        <dd>{formatPercent(target.probability, 1)} %</dd>
        <dt>Logit above the mean</dt>
        <dd>{formatFixed(target.logit, 3)}</dd>
      </dl>
    );
  }
  return (
    <dl>
      {node.coefficient !== null && (
        <>
          <dt>Activation</dt>
          <dd>{formatFixed(node.coefficient, 3)}</dd>
        </>
      )}
      <dt>Influence</dt>
      <dd>{formatPercent(node.influence, 1)} %</dd>
      <dt>Total effect on the logit</dt>
      <dd>{formatSigned(node.effect, 3)}</dd>
      <dt>Direct effect</dt>
      <dd>{formatSigned(node.direct, 3)}</dd>
    </dl>
  );
}

/** An expert's label and top activating tokens. */
export function NodeLabel({ response, index }: NodeProps) {
  const node = response.graph.nodes[index];
  const info = node === undefined ? undefined : nodeExpertInfo(response, node);
  if (info === undefined) return null;
  return (
    <span className="node-label">
      <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
      {(info.label !== null || shownAutomatic(info.automatic) !== null) && (
        <span className="chips">
          {info.top_tokens.slice(0, 3).map((text, i) => (
            <TokenChip key={i} text={text} />
          ))}
        </span>
      )}
    </span>
  );
}

export function NodeTip({ response, index }: NodeProps) {
  const { graph } = response;
  const node = graph.nodes[index];
  if (node === undefined) return null;
  return (
    <>
      <div className="hd">
        <b>{nodeName(graph, node)}</b>
      </div>
      <NodeLabel response={response} index={index} />
      <NodeFacts response={response} index={index} />
      <EdgeList response={response} index={index} direction="in" limit={MAX_EDGES} />
      <EdgeList response={response} index={index} direction="out" limit={MAX_EDGES} />
      {node.kind === "expert" && !node.traced && <p className="dim">Its own inputs were not traced.</p>}
    </>
  );
}

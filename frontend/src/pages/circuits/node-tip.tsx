/** What a tooltip says about a node, and the strongest edges in and out of it. */

import type { CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/expert-ref";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatPercent, formatSigned } from "@/lib/format";

import { edgesOf, infoOf, nodeName, side } from "./node-words";

const SHOWN = 4;

interface NodeProps {
  readonly response: CircuitResponse;
  readonly index: number;
}

export function EdgeList({ response, index, way, most }: NodeProps & { way: "in" | "out"; most: number }) {
  const { graph } = response;
  const edges = edgesOf(graph, index, way);
  if (edges.length === 0) return null;
  return (
    <div className="edge-list">
      <h3>{way === "in" ? "Comes from" : "Goes to"}</h3>
      <ul>
        {edges.slice(0, most).map((edge) => {
          const other = graph.nodes[edge.index];
          if (other === undefined) return null;
          return (
            <li key={edge.index}>
              <span className={`num ${side(edge.weight)}`}>{formatSigned(edge.weight, 3)}</span>{" "}
              {nodeName(graph, other)}
            </li>
          );
        })}
      </ul>
      {edges.length > most && <p className="dim">and {edges.length - most} more</p>}
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
          <dt>Coefficient</dt>
          <dd>{formatFixed(node.coefficient, 3)}</dd>
        </>
      )}
      <dt>Influence</dt>
      <dd>{formatPercent(node.influence, 1)} %</dd>
      <dt>Effect on the logit</dt>
      <dd>{formatSigned(node.effect, 3)}</dd>
      <dt>of it direct</dt>
      <dd>{formatSigned(node.direct, 3)}</dd>
    </dl>
  );
}

/** An expert's label, or the tokens that it fires on. */
export function NodeLabel({ response, index }: NodeProps) {
  const node = response.graph.nodes[index];
  const info = node === undefined ? undefined : infoOf(response, node);
  if (info === undefined) return null;
  return (
    <span className="node-label">
      <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
      {(info.label !== null || info.automatic !== null) && (
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
      <EdgeList response={response} index={index} way="in" most={SHOWN} />
      <EdgeList response={response} index={index} way="out" most={SHOWN} />
      {node.kind === "expert" && !node.followed && <p className="dim">What made it active was not looked for.</p>}
    </>
  );
}

/** Facts and edges of a shown node, for its tooltip and the side panel. */

import type { ReactNode } from "react";

import type { CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { TokenChip } from "@/components/tokens/token-chip";
import { formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import type { MeasuredEffects } from "@/pages/prompt/circuits/check/measured";

import { edgeEnd, nodeExpertInfo, nodeName, shownName, signClass } from "./node-labels";
import type { ShownNode } from "./shown-graph";

interface NodeProps {
  readonly response: CircuitResponse;
  readonly shown: ShownNode;
}

/** Weights of the edges into or out of a node by their other end; only MLPs of one band and token are added. */
function edgesOf(response: CircuitResponse, { members }: ShownNode, direction: "in" | "out") {
  const { edges, nodes } = response.graph;
  const [here, there] = direction === "in" ? (["target", "source"] as const) : (["source", "target"] as const);
  const ends = new Map<string, { readonly name: string; readonly weight: number }>();
  for (const edge of edges) {
    const other = nodes[edge[there]];
    if (other === undefined || !members.includes(edge[here]) || members.includes(edge[there])) continue;
    const { key, name } = edgeEnd(response, other, edge[there]);
    ends.set(key, { name, weight: (ends.get(key)?.weight ?? 0) + edge.weight });
  }
  return [...ends].sort(([, a], [, b]) => Math.abs(b.weight) - Math.abs(a.weight));
}

interface EdgesProps extends NodeProps {
  readonly direction: "in" | "out";
}

type Edges = ReturnType<typeof edgesOf>;

function EdgeItems({ edges }: { readonly edges: Edges }) {
  return (
    <ul>
      {edges.map(([key, { name, weight }]) => (
        <li key={key}>
          <span className={`num ${signClass(weight)}`}>{formatSigned(weight, 3)}</span> <span>{name}</span>
        </li>
      ))}
    </ul>
  );
}

/** Edges into or out of a node, largest weight first; `rest` shows those after the first `limit`. */
function EdgeList({ rest, limit, ...node }: EdgesProps & EdgeRest) {
  const edges = edgesOf(node.response, node.shown, node.direction);
  if (edges.length === 0) return null;
  return (
    <div className="edge-list">
      <h3>{node.direction === "in" ? "Inputs" : "Outputs"} by predicted weight</h3>
      <EdgeItems edges={edges.slice(0, limit)} />
      {edges.length > limit && rest(edges.slice(limit))}
    </div>
  );
}

interface EdgeRest {
  readonly limit: number;
  readonly rest: (edges: Edges) => ReactNode;
}

const countRest: EdgeRest = {
  limit: 4,
  rest: ({ length }) => <p className="dim">and {length} more</p>,
};
const unfoldRest: EdgeRest = {
  limit: 8,
  rest: (edges) => (
    <details>
      <summary className="dim">{edges.length} more</summary>
      <EdgeItems edges={edges} />
    </details>
  ),
};

/** All edges of a node; all but the largest are folded. */
export const FoldedEdges = (props: EdgesProps) => <EdgeList {...props} {...unfoldRest} />;

interface FactsProps extends NodeProps {
  /** Changes of the logit; null if they are shown elsewhere, beside the predicted ones. */
  readonly measured: MeasuredEffects | null;
}

export function NodeFacts({ response, shown: { node, supernode, id }, measured }: FactsProps) {
  const change = measured?.get(id);
  if (supernode !== null) return null;
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
      <dt>Direct effect on the logit</dt>
      <dd>{formatSigned(node.direct, 3)}</dd>
      {measured !== null && (
        <>
          <dt>Total effect on the logit, predicted</dt>
          <dd>{formatSigned(node.effect, 3)}</dd>
        </>
      )}
      {change !== undefined && (
        <>
          <dt>Total effect, measured by ablation</dt>
          <dd>{formatSigned(-change, 3)}</dd>
        </>
      )}
    </dl>
  );
}

/** An expert's label, the tokens it fires on and the one it promotes; the members of a supernode. */
export function NodeLabel({ response, shown }: NodeProps) {
  if (shown.members.length > 1) {
    const members = shown.members.flatMap((member) => response.graph.nodes[member] ?? []);
    return (
      <ul className="members">
        {members.map((node, i) => (
          <li key={i}>{nodeName(response, node)}</li>
        ))}
      </ul>
    );
  }
  const info = nodeExpertInfo(response, shown.node);
  if (info === undefined) return null;
  return (
    <div className="node-label">
      <ExpertLabel label={info.label} automatic={info.automatic} />
      {info.top_tokens.length > 0 && (
        <span className="chips">
          <span className="dim">Fires on</span>
          {info.top_tokens.slice(0, 3).map((text, i) => (
            <TokenChip key={i} text={text} />
          ))}
        </span>
      )}
      {info.promoted !== null && (
        <span className="chips">
          <span className="dim">Promotes</span>
          <TokenChip text={info.promoted} />
        </span>
      )}
    </div>
  );
}

export function NodeTip({ response, shown, measured }: NodeProps & { readonly measured: MeasuredEffects }) {
  const { node } = shown;
  return (
    <>
      <div className="hd">
        <b>{shownName(response, shown)}</b>
      </div>
      <NodeLabel response={response} shown={shown} />
      <NodeFacts response={response} shown={shown} measured={measured} />
      <EdgeList response={response} shown={shown} direction="in" {...countRest} />
      <EdgeList response={response} shown={shown} direction="out" {...countRest} />
      {node.kind === "expert" && !node.traced && <p className="dim">Its own inputs were not traced.</p>}
    </>
  );
}

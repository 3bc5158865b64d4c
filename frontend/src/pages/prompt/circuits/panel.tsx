/** Side panel: the selected or hovered expert with its effects, its edges and its examples. */

import { useQuery } from "@tanstack/react-query";

import { topExamplesQuery } from "@/api/queries";
import type { CircuitCheck, CircuitEdge, CircuitNode, CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Concordance } from "@/components/tokens/concordance";
import { PlusButton } from "@/components/tray/plus-button";
import { Button, LinkButton } from "@/components/ui/button";
import { formatFixed, formatSigned } from "@/lib/text/format";

import { boxName, effectText, expertInfo, nodeName, signClass, tokenText } from "./names";

const EXAMPLES = 4;

interface PanelProps {
  readonly response: CircuitResponse;
  readonly check: CircuitCheck | null;
  /** Index of a node. */
  readonly index: number;
  readonly onSelect: (index: number) => void;
  /** Explains the expert's own activation. */
  readonly onExplain: (node: CircuitNode) => void;
}

interface BarProps {
  readonly name: string;
  readonly value: number;
  /** The size that fills half the cell. */
  readonly largest: number;
}

function Bar({ name, value, largest }: BarProps) {
  const width = (50 * Math.abs(value)) / largest;
  return (
    <tr>
      <th scope="row">{name}</th>
      <td className="b">
        <i className={signClass(value)} style={{ width: `${width}%`, left: value < 0 ? `${50 - width}%` : "50%" }} />
      </td>
      <td className="num">{effectText(value, 3)}</td>
    </tr>
  );
}

function Effects({ node, measured }: { readonly node: CircuitNode; readonly measured: number | null | undefined }) {
  const largest = Math.max(1e-9, Math.abs(node.predicted), Math.abs(measured ?? 0));
  return (
    <>
      <h3>Effect on the target</h3>
      <table className="effect-bars">
        <tbody>
          <Bar name="Predicted" value={node.predicted} largest={largest} />
          {measured != null && <Bar name="Measured" value={measured} largest={largest} />}
        </tbody>
      </table>
      {node.method === "path" && (
        <p className="dim">
          A large step: predicted from the mean of three gradients on the way to the ablated expert.
        </p>
      )}
    </>
  );
}

interface EdgeListProps extends Pick<PanelProps, "response" | "check" | "index" | "onSelect"> {
  readonly direction: "in" | "out";
}

/** Edges to or from an expert, as shares of the later expert's activation. */
function EdgeList({ response, check, index, onSelect, direction }: EdgeListProps) {
  const { nodes, edges } = response.graph;
  const rows = edges.flatMap((edge, number) => {
    const [here, there] = direction === "in" ? [edge.target, edge.source] : [edge.source, edge.target];
    const other = nodes[there];
    return here !== index || other?.kind !== "expert" ? [] : [{ edge, number, there, other }];
  });
  if (rows.length === 0) return null;
  const share = (edge: CircuitEdge, change: number) => {
    const { activation } = nodes[edge.target] ?? {};
    return activation == null ? "" : `${formatSigned((100 * change) / activation, 0)}\u00a0%`;
  };
  return (
    <table className="edge-list">
      <thead>
        <tr>
          <th scope="col">{direction === "in" ? "Activated by" : "Activates"}</th>
          <th scope="col" className="num">
            Predicted
          </th>
          <th scope="col" className="num">
            Measured
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ edge, number, there, other }) => (
          <tr key={number}>
            <td>
              <button type="button" onClick={() => onSelect(there)}>
                {boxName(response, other)}
                <span className="dim">
                  {" "}
                  layer {other.layer}, on {tokenText(response.graph, other.position)}
                </span>
              </button>
            </td>
            <td className="num">{share(edge, edge.predicted)}</td>
            <td className="num">
              {check !== null &&
                (check.left_top_k[number] === true ? "inactive" : share(edge, check.edges[number] ?? 0))}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Top examples, from the run's index. */
function Examples({ run, expert }: { readonly run: string; readonly expert: number }) {
  const { data, error } = useQuery(topExamplesQuery(run, expert, EXAMPLES));
  const examples = data?.examples ?? [];
  if (error !== null || (data !== undefined && examples.length === 0)) return null;
  const largest = Math.max(1e-9, ...examples.map(({ activation }) => activation));
  return (
    <div className="circuit-examples">
      <h3>Top examples</h3>
      {data === undefined ? (
        <p className="dim">Loading…</p>
      ) : (
        <Concordance examples={examples} largest={largest} mode="snippet" />
      )}
    </div>
  );
}

export function NodePanel({ response, check, index, onSelect, onExplain }: PanelProps) {
  const { runs } = useCurrentRun();
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  if (node.kind === "target" || node.run === null || node.expert === null) {
    return (
      <section className="node-pane" aria-label="Selected node">
        <h2>{nodeName(response, node)}</h2>
        <p>
          Value {formatFixed(node.predicted, 3)}. An expert that supports it by 0.5 lowers it by 0.5 when ablated on its
          token.
        </p>
      </section>
    );
  }
  const info = expertInfo(response, node);
  const { run, expert } = node;
  const found = runs.find(({ name }) => name === run);
  const isHere = found !== undefined;
  return (
    <section className="node-pane" aria-label="Selected node">
      <h2>{nodeName(response, node)}</h2>
      {info !== undefined && (
        <p>
          <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
        </p>
      )}
      <Effects node={node} measured={check?.measured[index]} />
      <div className="node-actions">
        {isHere && (
          <LinkButton size="small" to={pageLinks(run).expert(expert)}>
            Open expert {expert}
          </LinkButton>
        )}
        <Button size="small" title="Trace what activates this expert on this token" onClick={() => onExplain(node)}>
          Explain its activation
        </Button>
        {isHere && <PlusButton expert={expert} run={run} />}
      </div>
      <EdgeList response={response} check={check} index={index} onSelect={onSelect} direction="in" />
      <EdgeList response={response} check={check} index={index} onSelect={onSelect} direction="out" />
      {found?.indexed_tokens != null && <Examples run={run} expert={expert} />}
    </section>
  );
}

/** The selected or hovered expert with its effects, its edges and its examples; and all experts as a table. */

import { useQuery } from "@tanstack/react-query";

import { topExamplesQuery } from "@/api/queries";
import type { CircuitCheck, CircuitEdge, CircuitNode, CircuitResponse } from "@/api/types";
import { ExpertLabel } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/plus-button";
import { Button, LinkButton } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { formatFixed, formatSigned } from "@/lib/text/format";

import { effectText, expertInfo, firesOn, nodeName, signClass, tokenText, type Writes } from "./circuit";

const EXAMPLES = 4;
const WRITTEN = 4;

interface PanelProps {
  readonly response: CircuitResponse;
  readonly check: CircuitCheck | null;
  readonly writes: Writes;
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
                <span className="mono">{other.expert}</span> {firesOn(response, other)}
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

export function NodePanel({ response, check, writes, index, onSelect, onExplain }: PanelProps) {
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
      <dl className="fires-writes">
        <dt>Fires on</dt>
        <dd>
          {info !== undefined && (
            <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
          )}
        </dd>
        <dt>
          <Term id="direct_logit_effect">Writes</Term> here
        </dt>
        <dd className="chips">
          {writes(node)
            ?.slice(0, WRITTEN)
            .map(({ id, text, change }) => (
              <span key={id}>
                <TokenChip text={text} /> <span className="num">{formatSigned(change)}</span>
              </span>
            )) ?? "…"}
        </dd>
      </dl>
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

const effect = (value: number | null | undefined) => (value == null ? "…" : effectText(value, 3));

export function ExpertTable({ response, check, onSelect }: Pick<PanelProps, "response" | "check" | "onSelect">) {
  const { nodes, tokens } = response.graph;
  return (
    <ScrollBox className="figure-table circuit-table" label="Experts of the circuit">
      <table className="grid plain">
        <thead>
          <tr>
            <th>Expert</th>
            <th>Token</th>
            <th className="num">Layer</th>
            <th className="num">Activation</th>
            <th className="num">Predicted effect</th>
            <th className="num">Measured effect</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node, index) => {
            if (node.kind !== "expert") return null;
            const info = expertInfo(response, node);
            return (
              <tr key={index}>
                <td className="what">
                  <button type="button" onClick={() => onSelect(index)}>
                    <span className="mono id">{node.expert}</span>{" "}
                    {info !== undefined && (
                      <ExpertLabel label={info.label} automatic={info.automatic} topTokens={info.top_tokens} />
                    )}
                  </button>
                </td>
                <td>
                  <TokenChip text={tokens[node.position]?.text ?? ""} />
                </td>
                <td className="num">{node.layer}</td>
                <td className="num">{formatFixed(node.activation ?? 0)}</td>
                <td className="num">{effectText(node.predicted, 3)}</td>
                <td className="num">{effect(check?.measured[index])}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </ScrollBox>
  );
}

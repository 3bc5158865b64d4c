/** The selected or hovered expert with its effects, its edges and its examples. */

import { useQuery } from "@tanstack/react-query";

import { directEffectsQuery, topExamplesQuery } from "@/api/queries";
import type { CircuitEdge, CircuitNode } from "@/api/types";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { Concordance } from "@/components/tokens/concordance";
import { distinctWords, Promoted, TokenChip, TokenChips } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/tray-context";
import { Button, LinkButton } from "@/components/ui/button";
import { formatFixed, formatSigned } from "@/lib/text/format";
import { ExpertName, FoundExpert } from "@/pages/prompt/expert-name";

import { effectText, expertInfo, nodeName, type Parts, tokenText } from "./circuit";

const EXAMPLES = 3;
const WRITTEN = 2;
const FIRES_ON = 4;

interface PanelProps extends Parts {
  /** The traced text. */
  readonly text: string;
  /** Index of a node. */
  readonly index: number;
  readonly onSelect: (index: number) => void;
  /** Explains the expert's own activation. */
  readonly onExplain: (node: CircuitNode) => void;
}

/** The name of an expert's node, the same in the finding and the panel. */
export function FoundNode({ response, index }: Pick<PanelProps, "response" | "index">) {
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  return (
    <FoundExpert info={expertInfo(response, node)} expert={node.expert}>
      layer {node.layer}, on <TokenChip text={response.graph.tokens[node.position]?.text ?? ""} />
    </FoundExpert>
  );
}

/** Edges to or from an expert: what the earlier one adds, as a share of the later one's activation. */
function EdgeList(props: PanelProps & { readonly direction: "in" | "out" }) {
  const { response, check, index, onSelect, direction } = props;
  const { nodes, edges } = response.graph;
  const all = edges.flatMap((edge, number) => {
    const [here, there] = direction === "in" ? [edge.target, edge.source] : [edge.source, edge.target];
    const other = nodes[there];
    return here !== index || other?.kind !== "expert" ? [] : [{ edge, number, there, other }];
  });
  if (all.length === 0) return null;
  const share = (edge: CircuitEdge, change: number) => {
    const { activation } = nodes[edge.target] ?? {};
    return activation == null ? "" : `${formatSigned((-100 * change) / activation, 0)}\u00a0%`;
  };
  return (
    <table className="edge-list">
      <thead>
        <tr>
          <th scope="col">{direction === "in" ? "Activated (+) or inhibited by" : "Activates (+) or inhibits"}</th>
          <th scope="col" className="num">
            Predicted
          </th>
          <th scope="col" className="num">
            Measured
          </th>
        </tr>
      </thead>
      <tbody>
        {all.map(({ edge, number, there, other }) => (
          <tr key={number}>
            <td>
              <button type="button" className="row" onClick={() => onSelect(there)}>
                <span className="mono">{other.expert}</span>
                <span>
                  <ExpertName info={expertInfo(response, other)} />{" "}
                  <span className="dim">
                    L{other.layer} {tokenText(response.graph, other.position)}
                  </span>
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

type FactsProps = PanelProps & { readonly node: CircuitNode };

/** The tokens that an expert promotes most on its token, requested after the check. */
function Writes({ response: { graph }, check, text, node: { run, position, expert } }: FactsProps) {
  const isRead = check !== null && position < graph.prompt_tokens;
  const { data } = useQuery(directEffectsQuery(run ?? "", text, isRead ? position : null));
  const promoted = data?.experts.find((effect) => effect.expert === expert)?.promoted;
  return promoted === undefined ? "…" : <Promoted tokens={promoted.slice(0, WRITTEN)} />;
}

/** What an expert fires on and writes, and its effects on the target. */
function Facts(props: FactsProps) {
  const { response, check, index, node } = props;
  const words = (expertInfo(response, node)?.top_tokens ?? []).map((text) => ({ text }));
  const measured = check?.measured[index];
  return (
    <dl className="fires-writes">
      <dt>Fires on</dt>
      <dd>
        <TokenChips tokens={distinctWords(words)} first={FIRES_ON} />
      </dd>
      <dt>
        <Term id="direct_logit_effect">Writes</Term> here
      </dt>
      <dd className="row wrap">
        <Writes {...props} />
      </dd>
      <dt>Activation</dt>
      <dd>{formatFixed(node.activation ?? 0)}</dd>
      <dt>Predicted</dt>
      <dd title={node.method === "path" ? "The mean of three gradients, as the step is large" : undefined}>
        <b>{effectText(node.predicted, 3)}</b>
      </dd>
      <dt>Measured</dt>
      <dd>{measured == null ? "…" : <b>{effectText(measured, 3)}</b>}</dd>
    </dl>
  );
}

export function NodePanel(props: PanelProps) {
  const { response, index, onExplain } = props;
  const { runs } = useCurrentRun();
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  if (node.kind === "target" || node.run === null || node.expert === null) {
    return (
      <section className="stack node-pane" aria-label="Selected node">
        <h2>{nodeName(response, node)}</h2>
        <p>
          Value {formatFixed(node.predicted, 3)}. An expert that supports it by 0.5 lowers it by 0.5 when ablated on its
          token.
        </p>
      </section>
    );
  }
  const { run, expert } = node;
  const found = runs.find(({ name }) => name === run);
  const isHere = found !== undefined;
  return (
    <section className="stack node-pane" aria-label="Selected node">
      <h2>
        <FoundNode response={response} index={index} />
      </h2>
      <Facts {...props} node={node} />
      <div className="row wrap">
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
      {(["in", "out"] as const).map((direction) => (
        <EdgeList key={`${direction}-${index}`} {...props} direction={direction} />
      ))}
      {found?.indexed_tokens != null && <Examples run={run} expert={expert} />}
    </section>
  );
}

/** Attention of the selected node's edges: the heads that carried one, and what made these look where they did. */

import "./attention.css";

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { type CircuitRequest, circuitAttentionQuery } from "@/api/circuits";
import type { CircuitAttentionResponse, CircuitResponse } from "@/api/types";
import { shownAutomatic } from "@/components/experts/automatic-label";
import { Button } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/states";
import { formatFixed, formatPercent, formatSigned } from "@/lib/text/format";
import { nodeName, signClass, tokenText } from "@/pages/prompt/circuits/graph/node-labels";
import type { ShownNode } from "@/pages/prompt/circuits/graph/shown-graph";

import { type AttentionEdge, attentionEdges } from "./attention-edges";

type Head = CircuitAttentionResponse["attention"]["heads"][number];
type Source = NonNullable<Head["score"]>["query_sources"][number];

interface PartsProps {
  readonly response: CircuitResponse;
  readonly explained: CircuitAttentionResponse;
}

function sourceName({ response, explained }: PartsProps, { kind, position, layer, run, expert }: Source): string {
  const token = position === null ? "" : tokenText(response.graph, position);
  if (kind === "bias") return "Biases";
  if (kind === "embedding") return `Token ${token}`;
  const where = `layer ${layer}, on ${token}`;
  if (kind === "mlp") return `MLP, ${where}`;
  if (kind === "error") return `Error node, ${where}`;
  const info = explained.experts[run ?? ""]?.[expert ?? -1];
  const label = info?.label ?? shownAutomatic(info?.automatic)?.label;
  return `${label ?? `Expert ${expert}`}, ${where}`;
}

interface SideProps extends PartsProps {
  readonly title: string;
  readonly sources: readonly Source[];
  readonly rest: number;
}

function Side({ title, sources, rest, ...parts }: SideProps) {
  return (
    <div className="edge-list">
      <h3>{title}</h3>
      <ul>
        {sources.map((source, i) => (
          <li key={i}>
            <span className={`num ${signClass(source.score)}`}>{formatSigned(source.score, 2)}</span>{" "}
            <span>{sourceName(parts, source)}</span>
          </li>
        ))}
        <li className="dim">
          <span className="num">{formatSigned(rest, 2)}</span> <span>all others</span>
        </li>
      </ul>
    </div>
  );
}

function Score({ head, ...parts }: PartsProps & { readonly head: Head }) {
  if (head.score === null) return <p className="dim">Only the three strongest heads are explained.</p>;
  const { graph } = parts.response;
  return (
    <>
      <p className="note">
        Score {formatFixed(head.score.above_mean)} above the mean of the visible tokens. Each side sums to it.
      </p>
      <Side
        {...parts}
        title={`Query at ${tokenText(graph, head.query)}`}
        sources={head.score.query_sources}
        rest={head.score.query_rest}
      />
      <Side
        {...parts}
        title={`Key at ${tokenText(graph, head.key)}`}
        sources={head.score.key_sources}
        rest={head.score.key_rest}
      />
    </>
  );
}

function Heads({ response, explained }: PartsProps) {
  const [chosen, setChosen] = useState(0);
  const { heads, weight } = explained.attention;
  const head = heads[chosen];
  if (head === undefined) return null;
  return (
    <>
      <table className="attention-heads">
        <thead>
          <tr>
            <th>Head</th>
            <th className="num">passes</th>
            <th>looks from → at</th>
            <th className="num">
              pattern <span className="unit">%</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {heads.map((each, i) => (
            <tr key={`${each.layer}.${each.head}`}>
              <th scope="row">
                <Button
                  size="small"
                  variant={i === chosen ? "chosen" : "ghost"}
                  aria-pressed={i === chosen}
                  aria-label={`Head ${each.head} of layer ${each.layer}`}
                  onClick={() => setChosen(i)}
                >
                  {each.layer}.{each.head}
                </Button>
              </th>
              <td className={`num ${signClass(each.weight)}`}>{formatSigned(each.weight, 3)}</td>
              <td>
                {tokenText(response.graph, each.query)} → {tokenText(response.graph, each.key)}
              </td>
              <td className="num">{formatPercent(each.pattern, 0)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="dim">
        The edge's weight is {formatSigned(weight, 3)}. Heads do not sum to it: most of it can bypass a layer's heads,
        and a path through heads of two layers counts for both. Names: layer.head.
      </p>
      <Score response={response} explained={explained} head={head} />
    </>
  );
}

interface AttentionPanelProps {
  readonly response: CircuitResponse;
  /** Null for a graph from a file, and while the response belongs to an earlier request. */
  readonly request: CircuitRequest | null;
  readonly shown: ShownNode | undefined;
}

/** Nothing for nodes without an edge to another token, and for graphs from a file. */
export function AttentionPanel({ response, request, shown }: AttentionPanelProps) {
  const [edge, setEdge] = useState<AttentionEdge | null>(null);
  const { graph } = response;
  const edges = shown === undefined ? [] : attentionEdges(response, shown);
  const [source, target] = [graph.nodes[edge?.source ?? -1] ?? null, graph.nodes[edge?.target ?? -1] ?? null];
  const { data, error, isFetching } = useQuery(
    circuitAttentionQuery(request && { ...request, target: graph.target.id }, source, target),
  );
  if (shown === undefined || request === null || edges.length === 0) return null;
  return (
    <section aria-label="Attention" aria-busy={isFetching}>
      <div className="pane-h">
        <h2>Attention</h2>
      </div>
      <p className="dim">Choose an edge to see the heads that carry it.</p>
      <ul className="attention-edges">
        {edges.map((each) => {
          const isInput = shown.members.includes(each.target);
          const other = graph.nodes[isInput ? each.source : each.target];
          const isChosen = each.source === edge?.source && each.target === edge.target;
          if (other === undefined) return null;
          return (
            <li key={`${each.source}-${each.target}`}>
              <Button
                size="small"
                variant={isChosen ? "chosen" : "plain"}
                aria-pressed={isChosen}
                onClick={() => setEdge(isChosen ? null : each)}
              >
                {isInput ? "from" : "to"} {nodeName(response, other)}
              </Button>
            </li>
          );
        })}
      </ul>
      {error !== null && <ErrorState error={error} />}
      {edge !== null && data === undefined && error === null && <p className="dim">Following the edge…</p>}
      {edge !== null && data !== undefined && (
        <Heads key={`${edge.source}-${edge.target}`} response={response} explained={data} />
      )}
    </section>
  );
}

/** The graph: nodes are buttons, edges are SVG paths. Dashes and symbols show signs in addition to colour. */

import { type CSSProperties, useLayoutEffect, useMemo, useRef } from "react";

import type { CircuitGraph } from "@/api/types";
import { tokenEvents } from "@/components/tokens/token-text";
import { ScrollBox } from "@/components/ui/pane-head";
import { useWidth } from "@/hooks/use-size";
import { divergingClass } from "@/lib/scales/colour-scale";
import { formatFixed, formatSigned } from "@/lib/text/format";
import { type Edge, Edges, nextCell } from "@/pages/prompt/edges";
import { ExpertName } from "@/pages/prompt/expert-name";

import {
  effectText,
  expertInfo,
  graphRows,
  nodeName,
  type Parts,
  pathThrough,
  signClass,
  sizedEdges,
  tokenRuns,
  tokenText,
} from "./circuit";

interface GraphProps extends Parts {
  /** Indices of nodes. The path through the hovered one, or through the selected one, is highlighted. */
  readonly selected: number;
  /** The node under the pointer or focus. */
  readonly hovered: number | null;
  readonly onSelect: (index: number) => void;
  readonly onHover: (index: number | null) => void;
}

interface NodeProps extends Parts, Pick<GraphProps, "selected"> {
  readonly index: number;
  /** The size with the darkest shade. */
  readonly largest: number;
  readonly isFaded: boolean;
}

function Node({ response, check, selected, index, largest, isFaded }: NodeProps) {
  const node = response.graph.nodes[index];
  if (node === undefined) return null;
  const measured = check?.measured[index];
  const isTarget = node.kind === "target";
  const change = measured ?? node.predicted;
  const shade = divergingClass(-change, largest) || (change < 0 ? "u1" : "d1");
  const info = expertInfo(response, node);
  return (
    <button
      type="button"
      className={`expert-box cnode ${isTarget ? "target" : `${signClass(change)} ${shade}`}`}
      tabIndex={index === selected ? 0 : -1}
      data-node={index}
      data-position={node.position}
      data-faded={isFaded || undefined}
      style={{ "--order": Math.round(1000 * (1 + change / largest)) } as CSSProperties}
      aria-pressed={index === selected}
    >
      <i className="sr">{isTarget ? "Target: " : `${nodeName(response, node)}, `}</i>
      <span className="clamp">{isTarget ? response.graph.label : <ExpertName info={info} />}</span>
      {!isTarget && <small> on {tokenText(response.graph, node.position)}</small>}
      <em className="num">
        {!isTarget && (
          <i className="sr">
            , predicted {effectText(node.predicted)}
            {measured != null && `, measured ${effectText(measured)}`}
          </i>
        )}
        <b aria-hidden={!isTarget}>{isTarget ? formatFixed(change) : formatSigned(-change)}</b>
      </em>
    </button>
  );
}

/** As in the style sheet. */
const GAP = 14;
const LABEL = "Circuit; use the arrow keys to move between nodes";

/** The edges to draw, and the nodes on the path through one. */
function usePath(graph: CircuitGraph, index: number) {
  const sized = useMemo(() => sizedEdges(graph), [graph]);
  return useMemo(() => {
    const { drawn, path, nodes } = pathThrough(index, sized);
    const edges = drawn.map((edge): Edge => {
      const { source, target, predicted, size } = edge;
      return { from: String(source), to: String(target), isUp: predicted < 0, size, isNear: path.has(edge) };
    });
    return { edges, near: nodes };
  }, [sized, index]);
}

/** Only a moving pointer shows a path: a graph may be drawn under one that rests. */
function nodeEvents({ onSelect, onHover }: Pick<GraphProps, "onSelect" | "onHover">) {
  const { onPointerOver: onPointerMove, ...events } = tokenEvents({
    selector: "[data-node]",
    onEnter: (node) => onHover(node === null ? null : Number(node.dataset.node)),
    onPress: (node) => onSelect(Number(node.dataset.node)),
    next: nextCell,
  });
  return { ...events, onPointerMove };
}

/** Whether a layer has more than two experts on a token. */
const isWide = ({ nodes }: CircuitGraph, position = -1) =>
  nodes.some(({ layer }) => nodes.filter((node) => node.layer === layer && node.position === position).length > 2);

/** A table of layers by tokens; on a narrow screen, its rows are lists. */
export function Graph(props: GraphProps) {
  const { response, check, selected, hovered } = props;
  const { graph } = response;
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const runs = useMemo(() => tokenRuns(graph), [graph]);
  const rows = useMemo(() => graphRows(graph), [graph]);
  const { edges, near } = usePath(graph, hovered ?? selected);
  // The target and the strongest experts are at the last tokens.
  useLayoutEffect(() => {
    if (box.current !== null) box.current.scrollLeft = box.current.scrollWidth;
  }, [graph, width]);
  const changes = graph.nodes.slice(1).map(({ predicted }, i) => Math.abs(check?.measured[i + 1] ?? predicted));
  const largest = Math.max(1e-9, ...changes);
  const node = (index: number) => {
    const isFaded = hovered !== null && !near.has(index);
    return <Node key={index} {...{ response, check, selected, index, largest, isFaded }} />;
  };
  return (
    <ScrollBox className="layer-box" label="Circuit by token" ref={box}>
      <div
        className="layer-table circuit"
        role="group"
        aria-label={LABEL}
        data-path={hovered !== null || undefined}
        {...nodeEvents(props)}
      >
        <Edges edges={edges} gap={GAP} />
        <table role="presentation">
          <tbody>
            <tr className="ctokens">
              <td>Tokens</td>
              {runs.map(({ positions, isNamed }) => {
                const text = positions.map((position) => tokenText(graph, position)).join(" ");
                return (
                  <td key={positions[0]} title={text} data-wide={isWide(graph, positions[0]) || undefined}>
                    {isNamed ? text : "⋯"}
                  </td>
                );
              })}
            </tr>
            {rows.map(({ title, indices }) => (
              <tr key={title}>
                <td>{title}</td>
                {(indices.length === 0 ? runs.slice(0, 1) : runs).map(({ positions: [position] }) => (
                  <td key={position} colSpan={indices.length === 0 ? runs.length : 1}>
                    <div className="row wrap">
                      {indices.filter((i) => graph.nodes[i]?.position === position).map(node)}
                      {indices.length === 0 && <span className="dim">none among the {changes.length} strongest</span>}
                    </div>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </ScrollBox>
  );
}
